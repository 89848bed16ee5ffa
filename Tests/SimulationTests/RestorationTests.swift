import NightbellCore
import Simulation
import Testing

/// Recovery between turns: no client's state may be lost or mixed up with another's. (Every simulated world
/// covers supervisors that end at other moments.)
@Suite("Recovery")
struct RestorationTests {
    @Test("Every client has its old state, at any turn's end", arguments: 2_000..<2_012 as Range<UInt64>)
    func same(_ seed: UInt64) throws {
        var world = World(seed: seed)
        while world.steps < 300 {
            world.step()
            // Deadlines that are due are not handled yet, and recovery handles them.
            let isDue = world.core.nextDeadline.map { $0 <= world.now } ?? false
            guard world.steps % 10 == 0, !isDue, !world.core.isStopping else { continue }
            var actions = ActionBuffer()
            let next = try Supervision(
                settings: world.core.settings, restoring: world.snapshot, at: world.now, into: &actions)
            #expect(next.clientIDs == world.core.clientIDs)
            #expect(next.socketCount == world.core.socketCount)
            // A client resumed by another process is found running.
            let found = Set(
                world.snapshot.clients.filter { $0.execution == .running && $0.wasStopped }.map(\.id))
            // A client that may not have been welcomed registers again.
            let unwelcome = Set(world.snapshot.clients.filter { $0.presence == .welcomed }.map(\.id))
            for client in world.core.clientIDs where !found.contains(client) && !unwelcome.contains(client) {
                compare(client, world.core, next, at: world.now)
            }
            for (old, new) in zip(world.core.usage, next.usage.filter { $0.usage.identifiers > 0 }) {
                #expect(old.user == new.user && old.usage.clients == new.usage.clients)
                #expect(old.usage.sockets == new.usage.sockets)
                #expect(old.usage.identifiers == new.usage.identifiers)
            }
        }
    }

    private func compare(
        _ client: ClientID, _ core: Supervision, _ next: Supervision, at now: Instant
    ) {
        guard let old = core.view(of: client, at: now), let new = next.view(of: client, at: now) else {
            return #expect(Bool(false), "\(client) is lost")
        }
        #expect(old.identifier == new.identifier && old.user == new.user && old.modes == new.modes)
        #expect(old.registeredAt == new.registeredAt)
        #expect(old.sockets.map(\.rawValue).sorted() == new.sockets.map(\.rawValue).sorted())
        #expect(old.keepAliveTimeout?.nanoseconds == new.keepAliveTimeout?.nanoseconds)
        #expect(old.backgroundTasks == new.backgroundTasks && (old.media == nil) == (new.media == nil))
        // A suspension under way is finished or cancelled.
        guard old.state != .suspending else { return }
        #expect(old.state == new.state, "\(old.state) became \(new.state)")
        #expect(old.enteredStateAt == new.enteredStateAt)
        #expect(old.counters == new.counters)
        #expect(old.keepAliveWindow == new.keepAliveWindow)
        #expect(old.holds == new.holds)
        for token in old.sockets { #expect(core.tag(of: token) == next.tag(of: token)) }
    }

    @Test("Records of another version are refused")
    func newer() throws {
        var world = World(seed: 2_001)
        while world.core.clientIDs.isEmpty { world.step() }
        var snapshot = world.snapshot
        var actions = ActionBuffer()
        snapshot.clients[0].state?.row.version += 1
        let id = snapshot.clients[0].id
        #expect(throws: RecoverySnapshotError.unintelligible(id)) {
            _ = try Supervision(settings: Settings(), restoring: snapshot, at: world.now, into: &actions)
        }
    }
}

/// The simulator compares counters before and after a restart.
@Suite("Detection of counters that decrease")
struct CounterTests {
    @Test("Every counter is compared")
    func each() {
        var full = Counters()
        for counter in Counter.allCases { full[counter] = 5 }
        full.asleepNanoseconds = 5
        #expect(full.isAtLeast(full))
        var less = full
        less.asleepNanoseconds = 4
        #expect(full.isAtLeast(less) && !less.isAtLeast(full))
        for counter in Counter.allCases {
            var less = full
            less[counter] = 4
            #expect(full.isAtLeast(less))
            #expect(!less.isAtLeast(full))
        }
    }
}
