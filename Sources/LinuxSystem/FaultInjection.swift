import Glibc
import Synchronization

/// Ends this process at a point that a test chooses by its number. Empty in release builds.
package enum FaultInjection {
    #if NIGHTBELL_FAULTS
        /// The number of points still to be passed; negative: none is armed.
        private static let countdown = Atomic<Int>(-1)

        /// The prefix of the names of counted points: `NIGHTBELL_FAULT_AT`, or any name.
        private static let beginning =
            unsafe getenv("NIGHTBELL_FAULT_AT").map { unsafe String(cString: $0) } ?? ""

        /// Ends the process at the point with this number, counted from 1 and from now on.
        package static func arm(_ number: Int) {
            countdown.store(number, ordering: .relaxed)
        }

        /// Arms as `NIGHTBELL_FAULT` says, in the first worker only: later ones are to live.
        package static func armFromEnvironment(isFirst: Bool) {
            guard isFirst, let value = unsafe getenv("NIGHTBELL_FAULT"),
                let number = unsafe Int(String(cString: value))
            else { return }
            arm(number)
        }

        /// A point between two steps, either of which may be the last.
        package static func point(_ name: StaticString) {
            guard countdown.load(ordering: .relaxed) > 0, name.description.hasPrefix(beginning) else {
                return
            }
            guard countdown.subtract(1, ordering: .relaxed).newValue == 0 else { return }
            if unsafe getenv("NIGHTBELL_FAULT_SAID") != nil {
                let line = Array("dies \(name)\n".utf8)
                _ = unsafe write(STDERR_FILENO, line, line.count)
            }
            kill(getpid(), SIGKILL)
        }
    #else
        @inline(__always)
        package static func armFromEnvironment(isFirst: Bool) {}

        @inline(__always)
        package static func point(_: StaticString) {}
    #endif
}
