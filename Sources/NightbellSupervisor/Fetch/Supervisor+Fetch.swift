import Glibc
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire

/// The edge's part of fetches: facts about the machine, and a file that outlives it.
struct FetchCare {
    /// The next look at the machine, in running time; nil: with the next turn.
    var nextLook: Instant?
    /// The offset of the wall clock that the core knows.
    var offset: Int64?
    var isShort = false
    /// The file is not written again before that.
    var nextWrite: Instant?
    /// The file lags behind.
    var isChanged = false
}

extension Supervisor {
    private static let writeInterval = Duration.seconds(600)
    /// Readings of two clocks one after the other differ by less.
    private static let clockTolerance: Int64 = 500_000_000

    /// When shortages are looked at again; nil: there is none that would end, and no transfer that can wait,
    /// and a later turn is soon enough.
    var nextLookAtMachine: Instant? {
        (fetchCare.isShort || transferCare.isGoodMoment) && isMachineLookedAt ? fetchCare.nextLook : nil
    }

    /// Whether any client fetches, or has transfers that wait.
    private var isMachineLookedAt: Bool { ask { !$0.fetches.isEmpty || $0.hasDiscretionaryTransfers } }

    /// Tells the core of local time and of shortages, if any client fetches or has transfers that wait: at most once a minute, and in
    /// turns that there are anyway (`SupervisorConfiguration.pressure`). The timer is set for it only while memory or
    /// processors are short, or there are transfers that can wait.
    func lookAtMachine() {
        guard isMachineLookedAt, fetchCare.nextLook.map({ $0 <= now }) ?? true else { return }
        fetchCare.nextLook = now + configuration.pressure.interval
        let limits = ask { $0.settings.fetch }
        let look = MachineLook(
            processorLimit: Double(limits.processorPressure), memoryLimit: Double(limits.memoryPressure),
            directory: configuration.pressure.directory)
        let moved = fetchCare.offset.map { abs($0 - look.wallClockOffset) > Self.clockTolerance } ?? true
        if moved {
            fetchCare.offset = look.wallClockOffset
            feed(.fact(.wallClock(offset: .nanoseconds(look.wallClockOffset))))
        }
        if look.isShort != fetchCare.isShort {
            fetchCare.isShort = look.isShort
            feed(.fact(.shortage(look.isShort)))
            notifyWatchers(of: .shortage(look.isShort))
        }
    }

    // MARK: The file

    func noteChangedFetches() {
        guard !ask({ $0.changedFetches.isEmpty }), durable.fetches != nil else { return }
        fetchCare.isChanged = true
        if fetchCare.nextWrite.map({ $0 <= now }) ?? true { writeFetches() }
    }

    /// Has the file replaced, if it lags behind.
    func writeFetches() {
        guard fetchCare.isChanged, let store = durable.fetches else { return }
        fetchCare.isChanged = false
        fetchCare.nextWrite = now + Self.writeInterval
        let shift = Duration.nanoseconds(MachineLook.realOffset())
        let fetches = ask { supervision in
            supervision.fetches.places.sorted().compactMap { place -> StoredFetch? in
                guard let state = supervision.fetches.state(at: place),
                    let owner = supervision.owner(at: place)
                else { return nil }
                var stored = StoredFetch(state, shift: shift)
                stored.identifier = owner.identifier.description
                stored.user = owner.user
                return stored
            }
        }
        store.write(fetches)
    }

    /// Restores what an earlier supervisor knew. Later workers have it from the keeper.
    func recallFetches() {
        guard let store = durable.fetches else { return }
        let shift = Duration.nanoseconds(MachineLook.realOffset())
        do throws(SystemError) {
            for stored in try store.read() {
                guard let identifier = ClientIdentifier(stored.identifier),
                    supervision.ownership(of: identifier)?.user == stored.user,
                    let state = FetchState(stored, shift: shift)
                else { continue }
                supervision.remember(state.clamped(to: elapsedNow), of: identifier)
            }
        } catch {
            logger.error("the habits learned for fetches are not known any more: \(error)")
        }
    }
}
