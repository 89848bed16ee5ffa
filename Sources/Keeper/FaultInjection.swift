import Glibc
import Synchronization

/// Has this process die at a place that a test names by its number. In release builds there is nothing here.
package enum FaultInjection {
    #if NIGHTBELL_FAULTS
        /// How many places are still passed; below zero: none is left to die at.
        private static let countdown = Atomic<Int>(-1)

        /// What the names of the places that count begin with: `NIGHTBELL_FAULT_AT`, or anything.
        private static let beginning =
            unsafe getenv("NIGHTBELL_FAULT_AT").map { unsafe String(cString: $0) } ?? ""

        /// Dies at the place with this number, counted from 1 and from now on.
        package static func arm(_ number: Int) {
            countdown.store(number, ordering: .relaxed)
        }

        /// As `NIGHTBELL_FAULT` says, in a worker that is the first: those after it are to live.
        package static func armFromEnvironment(isFirst: Bool) {
            guard isFirst, let value = unsafe getenv("NIGHTBELL_FAULT"),
                let number = unsafe Int(String(cString: value))
            else { return }
            arm(number)
        }

        /// A place between two steps, either of which may be the last.
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
