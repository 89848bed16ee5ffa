package import EventLoop
import LinuxSystem

/// Gathers the events of one turn of the loop, and thaws each wake's owner as soon as its event is known.
///
/// The turn must know of every client that was thawed early before it does anything else: a client that runs
/// and is taken for asleep would be woken by its own messages. So the turn waits for the end of a wake burst.
/// Of a large burst it is given a portion at a time; wakes that arrive meanwhile are thawed between the
/// portions.
struct TurnGatherer {
    private var burst = WakeBurst()
    /// Since when turns were given portions, of `BootClock`; nil: the last turn was given everything.
    private var behindSince: Int64?

    /// The turn waits for no further events once this many are known. A socket watched for edges fires again
    /// with each arrival; the kernel merges uncollected edges into one.
    private static let enough = 1_024
    /// A turn with more wakes would take some 1.5 ms, and wakes that arrive meanwhile would wait for it.
    static let portion = 64
    /// The longest time for which turns are given portions, in nanoseconds.
    private static let longestBehind: Int64 = 50_000_000

    /// Waits for an event, and in a wake burst for its end. Only wakes prolong that wait: other events would
    /// be answers of clients that were told already, while further wakes arrive.
    ///
    /// - Returns: whether the next turn gets all events; otherwise it gets a portion of the wakes only.
    mutating func gather(_ loop: LoopExecutor) throws(LoopError) -> Bool {
        let mayWait = loop.mayWait
        if mayWait {
            guard try loop.dispatch(waits: true) else {
                behindSince = nil
                return true
            }
        } else if loop.readyCount < Self.enough {
            _ = try loop.collectUrgent(waiting: 0, atMost: Self.enough - loop.readyCount)
        }
        // Do not wait while other clients wait for their portion, or jobs are queued.
        let hasWaited = mayWait ? try awaitEndOfBurst(loop) : false
        guard !fallsBehind(loop) else { return false }
        if !mayWait || hasWaited || loop.hasUnreported { _ = try loop.dispatch(waits: false) }
        return true
    }

    /// - Returns: whether it has waited for further wakes.
    private mutating func awaitEndOfBurst(_ loop: LoopExecutor) throws(LoopError) -> Bool {
        guard loop.handledEarlyCount > 0 else { return false }
        burst.reset()
        var now = BootClock.now()
        burst.update(pending: loop.handledEarlyCount, at: now)
        var hasWaited = false
        while loop.readyCount < Self.enough, let wait = burst.wait(at: now) {
            hasWaited = true
            let known = loop.readyCount
            let isThawed = try loop.collectUrgent(waiting: wait, atMost: Self.enough - known)
            guard loop.readyCount > known else { break }
            now = BootClock.now()
            if isThawed { burst.update(pending: loop.handledEarlyCount, at: now) }
        }
        return hasWaited
    }

    /// Whether more clients were thawed than the next turn may be told of. Limited in time, however many
    /// wakes arrive.
    private mutating func fallsBehind(_ loop: LoopExecutor) -> Bool {
        guard loop.handledEarlyCount > Self.portion else {
            behindSince = nil
            return false
        }
        let now = BootClock.now()
        let since = behindSince ?? now
        let mayBeBehind = now - since < Self.longestBehind
        behindSince = mayBeBehind ? since : nil
        return mayBeBehind
    }
}

extension LoopExecutor {
    /// Runs the loop until `stop`, inside of `own`.
    ///
    /// - Parameters:
    ///   - early: called with the event of each parked socket as soon as it is known. True: its owner was
    ///     thawed.
    ///   - turn: called with the events since the last turn, if there are any. If it is not whole, it has a
    ///     portion of the wakes and nothing else.
    package func runTurns(
        early: @escaping (_ ready: Ready) -> Bool, turn: (_ batch: [Ready], _ isWhole: Bool) -> Void
    ) throws(LoopError) {
        onUrgent = early
        defer { onUrgent = { _ in false } }
        var gatherer = TurnGatherer()
        try runTurns { () throws(LoopError) in
            let isWhole = try gatherer.gather(self)
            deliver(atMost: isWhole ? .max : TurnGatherer.portion) { turn($0, isWhole) }
            return isWhole
        }
    }
}
