import CFloors
import Glibc

/// Nanoseconds of the clock that all time stamps are read from.
func monotonicNow() -> Int64 { cfloors_now() }

/// Sleeps. Ends with an error when the user wants the run to end.
func pause(nanoseconds: Int64) throws(LoadError) {
    var left = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
    // Interrupted early, it is either the end or does not matter.
    nanosleep(&left, nil)
    if cfloors_interrupted() != 0 { throw .interrupted }
}

/// Looks again and again, at pauses that begin short and grow, until something is so. The harness sleeps in
/// between: it must not take a processor from those it measures.
func wait(
    for what: @autoclosure () -> String, atMost limit: Duration, firstPause: Int64 = 100_000,
    until condition: () throws -> Bool
) throws {
    let deadline = monotonicNow() + limit.wholeNanoseconds
    var nanoseconds = firstPause
    while try !condition() {
        guard monotonicNow() < deadline else { throw LoadError.timedOut(what()) }
        try pause(nanoseconds: nanoseconds)
        nanoseconds = min(nanoseconds * 5 / 4, 20_000_000)
    }
}

extension Duration {
    var wholeNanoseconds: Int64 {
        let (seconds, attoseconds) = components
        return seconds * 1_000_000_000 + attoseconds / 1_000_000_000
    }

    var inSeconds: Double { Double(wholeNanoseconds) / 1e9 }
}
