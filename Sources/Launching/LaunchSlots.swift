import CLinux
import Glibc
package import LinuxSystem

/// Descriptors with low numbers, set aside for launches before there are many others.
///
/// A supervisor may have thousands of descriptors, and a program that it launches needs a few of them. To
/// copy the whole table and to close the copies takes longer than all the rest of a launch. So the new
/// process shares the table at first, and copies its lowest part only. The descriptors that it needs are
/// duplicated into slots of that part, and stay there until it has copied them, whatever happens to the
/// originals.
package final class LaunchSlots: @unchecked Sendable {
    // Sendable: only the supervisor's thread uses it. Processes that are forked have their own.
    private let placeholder: OwnedDescriptor
    private var numbers: [CInt]
    private var isTaken: [Bool]

    /// - Parameter count: A launch takes one for each socket and two more.
    package init(count: Int) throws(SystemError) {
        placeholder = try OwnedDescriptor(opening: "/dev/null", O_RDONLY)
        numbers = []
        isTaken = Array(repeating: false, count: count)
        // From here on the end of the object closes them, also after an error.
        for _ in 0..<count {
            numbers.append(
                try systemCall("fcntl") {
                    fcntl(placeholder.rawValue, F_DUPFD_CLOEXEC, LaunchOrder.firstDescriptor)
                })
        }
    }

    deinit {
        for number in numbers { close(number) }
    }

    /// Duplicates descriptors into free slots; nil: too few are free.
    func hold(_ descriptors: [CInt]) throws(SystemError) -> Held? {
        let free = numbers.indices.filter { !isTaken[$0] }.prefix(descriptors.count)
        guard free.count == descriptors.count else { return nil }
        for index in free { isTaken[index] = true }
        // Made before the duplicates: its end gives the slots back, also after an error.
        let held = Held(slots: self, indices: Array(free))
        for (number, descriptor) in zip(held.descriptors, descriptors) {
            _ = try systemCall("dup3") { clinux_duplicate_over(descriptor, number) }
        }
        return held
    }

    /// Slots in use.
    struct Held: ~Copyable {
        private let slots: LaunchSlots
        private let indices: [Int]

        fileprivate init(slots: LaunchSlots, indices: [Int]) {
            self.slots = slots
            self.indices = indices
        }

        /// The duplicates, in the order of the descriptors.
        var descriptors: [CInt] { indices.map { slots.numbers[$0] } }

        /// A child may copy them at any time: they stay in use for ever.
        var isAbandoned = false

        deinit {
            guard !isAbandoned else { return }
            for index in indices {
                // It cannot fail: both numbers are open, and nothing else closes them.
                _ = clinux_duplicate_over(slots.placeholder.rawValue, slots.numbers[index])
                slots.isTaken[index] = false
            }
        }
    }

    /// The number of descriptors that this uses itself.
    package var descriptorCount: Int { numbers.count + 1 }

    /// For tests: the number of slots that are free.
    package var freeCount: Int { isTaken.count { !$0 } }
}
