import CFloors
import Glibc

/// Nanoseconds of the clock of all time stamps.
func monotonicNow() -> Int64 { cfloors_now() }

/// Sleeps. Throws when the user has interrupted the run.
func pause(nanoseconds: Int64) throws(LoadError) {
    var left = timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
    // An early wake-up is either the interruption or harmless.
    nanosleep(&left, nil)
    if cfloors_interrupted() != 0 { throw .interrupted }
}

/// Waits until a condition holds, and checks it after pauses that grow. The harness sleeps in between: it
/// must not take a processor from the processes that it measures.
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
