import Descriptors
package import EventLoop

/// Gathers the events of one turn of the loop, and lets each wake happen as soon as its event is known.
///
/// The turn knows of every client that was thawed early before it does anything else: a client that runs and is taken for
/// asleep would be woken by its own messages. So the turn waits for the end of a burst of wakes, and if there are many, it is
/// given a portion of them at a time; wakes that arrive meanwhile are dealt with between the portions.
struct TurnGatherer {
    private var burst = WakeBurst()
    /// Since when turns were given portions, of `BootClock`; nil: the last turn was given everything.
    private var behindSince: Int64?

    /// The turn waits for no more events when so many are known. Edges come again and again: the kernel reports those that
    /// are not collected once.
    private static let enough = 1_024
    /// A turn with more wakes would take some 1.5 ms, and wakes that arrive meanwhile would wait for it.
    static let portion = 64
    /// The longest time for which turns are given portions, in nanoseconds.
    private static let longestBehind: Int64 = 50_000_000

    /// Waits for something to happen, and in a burst of wakes for the end of it. Only wakes end that wait: other events would
    /// be those of clients that were told already, answering, while further wakes arrive.
    ///
    /// - Parameter early: called with the event of each parked socket as soon as it is known. True: its owner was thawed.
    /// - Returns: whether everything that is known is for the next turn; else it is for a portion of the wakes only.
    mutating func gather(
        _ loop: LoopExecutor, early: (_ ready: Ready) -> Bool
    ) throws(LoopError) -> Bool {
        let mayWait = loop.mayWait
        let isUrgent = mayWait ? try loop.dispatch(waits: true) : true
        guard isUrgent else {
            behindSince = nil
            return true
        }
        let hasWaited = try collectWakes(loop, mayWait: mayWait, early)
        guard !fallsBehind(loop) else { return false }
        if !mayWait || hasWaited || loop.hasUnreported { _ = try loop.dispatch(waits: false) }
        return true
    }

    /// - Returns: whether it has waited for further wakes.
    private mutating func collectWakes(
        _ loop: LoopExecutor, mayWait: Bool, _ early: (_ ready: Ready) -> Bool
    ) throws(LoopError) -> Bool {
        burst.reset()
        var hasWaited = false
        var timeout: CInt? = 0
        while let wait = timeout {
            timeout = nil
            let known = loop.readyCount
            guard known < Self.enough else { break }
            let isThawed = try loop.collectUrgent(
                waiting: wait, atMost: Self.enough - known, early: early)
            // Nothing is waited for while other clients wait for their portion, or jobs do.
            guard mayWait, loop.readyCount > known else { break }
            let now = BootClock.now()
            if isThawed { burst.note(pending: loop.dealtCount, at: now) }
            timeout = burst.wait(at: now)
            if timeout != nil { hasWaited = true }
        }
        return hasWaited
    }

    /// Whether more clients were thawed than the next turn is to be told of. Not for ever, however many wakes arrive.
    private mutating func fallsBehind(_ loop: LoopExecutor) -> Bool {
        guard loop.dealtCount > Self.portion else {
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
    /// Runs the loop until `stop`.
    ///
    /// - Parameters:
    ///   - early: see ``TurnGatherer/gather(_:early:)``.
    ///   - turn: called with what has happened since the last turn, if anything did. If it is not whole, it has a portion of
    ///     the wakes and nothing else.
    package func run(
        early: (_ ready: Ready) -> Bool, turn: (_ batch: [Ready], _ isWhole: Bool) -> Void
    ) throws(LoopError) {
        var gatherer = TurnGatherer()
        try run { () throws(LoopError) in
            let isWhole = try gatherer.gather(self, early: early)
            deliver(atMost: isWhole ? .max : TurnGatherer.portion) { turn($0, isWhole) }
            return isWhole
        }
    }
}
