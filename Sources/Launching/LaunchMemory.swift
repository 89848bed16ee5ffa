import CLinux
import Glibc
import LinuxSystem

/// Everything that a child reads between its making and its program, in one block of memory that never
/// changes.
@safe
final class LaunchMemory {
    /// Enough for a few nested system calls. The heap has such a block; a larger one would be a mapping of
    /// its own.
    private static let stackSize = 8_192

    let launch: UnsafeMutablePointer<clinux_launch>
    private var pieces: [UnsafeMutableRawPointer]
    private let stack: UnsafeMutableRawPointer
    private let stackSize: Int
    /// Duplicates of the report and the descriptors, until the child has copied them; nil: it has, or gets a
    /// copy of all of ours at once.
    private var held: LaunchSlots.Held?

    init(_ order: LaunchOrder, report: CInt, _ slots: LaunchSlots?) throws(SystemError) {
        held = try slots?.hold([report] + order.descriptors)
        let descriptors = held?.descriptors ?? [report] + order.descriptors
        unsafe launch = .allocate(capacity: 1)
        unsafe launch.initialize(to: clinux_launch())
        stackSize = Self.stackSize + 8 * order.descriptors.count
        unsafe stack = .allocate(byteCount: stackSize, alignment: 16)
        unsafe pieces = [UnsafeMutableRawPointer(launch), stack]
        unsafe pieces.reserveCapacity(64)
        fill(order, descriptors: descriptors.dropFirst())
        unsafe launch.pointee.report = descriptors[0]
        if held != nil { unsafe launch.pointee.descriptor_end = UInt32(descriptors.max() ?? 0) + 1 }
    }

    deinit {
        unsafe pieces.forEach { piece in unsafe piece.deallocate() }
    }

    /// Leaks the memory, because a child may still use it.
    func abandon() {
        unsafe pieces.removeAll()
        held?.isAbandoned = true
    }

    /// Gives up the duplicates once the child has copied them.
    func releaseDescriptors() {
        if unsafe clinux_launch_has_copied(launch) != 0 { held = nil }
    }

    /// Makes the child.
    func start(_ pidfd: inout CInt) -> pid_t {
        unsafe clinux_launch(launch, stack, stackSize, &pidfd)
    }

    private func fill(_ order: LaunchOrder, descriptors: ArraySlice<CInt>) {
        let specification = order.specification
        unsafe launch.pointee.programs = UnsafePointer(table(order.programs).constant)
        unsafe launch.pointee.arguments = UnsafePointer(table(specification.arguments))
        unsafe launch.pointee.environment = UnsafePointer(environment(order))
        unsafe launch.pointee.directory = UnsafePointer(text(specification.directory))
        if let output = specification.output { unsafe launch.pointee.output = UnsafePointer(text(output)) }
        unsafe launch.pointee.file_mode_mask = specification.fileModeMask
        unsafe launch.pointee.descriptors = UnsafePointer(array(Array(descriptors)))
        unsafe launch.pointee.descriptor_count = UInt32(descriptors.count)
        let limits = specification.limits.map {
            clinux_launch_limit(resource: $0.resource.rawValue, soft: $0.soft, hard: $0.hard)
        }
        unsafe launch.pointee.limits = UnsafePointer(array(limits))
        unsafe launch.pointee.limit_count = UInt32(limits.count)
        unsafe launch.pointee.changes_identity = order.changesIdentity ? 1 : 0
        unsafe launch.pointee.user = order.identity.user
        unsafe launch.pointee.group = order.identity.group
        unsafe launch.pointee.groups = UnsafePointer(array(order.identity.otherGroups))
        unsafe launch.pointee.group_count = UInt32(order.identity.otherGroups.count)
    }

    /// The variables, including the ones that tell the program its own pid, which only the child knows.
    private func environment(
        _ order: LaunchOrder
    ) -> UnsafeMutablePointer<UnsafeMutablePointer<CChar>?> {
        let room = String(repeating: " ", count: Int(CLINUX_PROCESS_TEXT))
        let texts = order.environment.map { "\($0)=\($1)" }
        let own = order.processVariables.map { "\($0)=" + room }
        let table = unsafe table(texts + own)
        unsafe withUnsafeMutablePointer(to: &launch.pointee.process_texts) { slots in
            unsafe slots.withMemoryRebound(to: UnsafeMutablePointer<CChar>?.self, capacity: 2) { slots in
                for (index, name) in order.processVariables.prefix(2).enumerated() {
                    unsafe slots[index] = table[texts.count + index].map { unsafe $0 + name.utf8.count + 1 }
                }
            }
        }
        return unsafe table
    }

    // MARK: Pieces

    private func table(_ texts: [String]) -> UnsafeMutablePointer<UnsafeMutablePointer<CChar>?> {
        let result = UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>.allocate(capacity: texts.count + 1)
        unsafe pieces.append(result)
        for (index, text) in texts.enumerated() { unsafe result[index] = self.text(text) }
        unsafe result[texts.count] = nil
        return unsafe result
    }

    private func text(_ text: String) -> UnsafeMutablePointer<CChar> {
        var text = text
        return text.withUTF8 { bytes in
            let result = UnsafeMutablePointer<CChar>.allocate(capacity: bytes.count + 1)
            unsafe pieces.append(result)
            unsafe bytes.withMemoryRebound(to: CChar.self) { bytes in
                if let first = bytes.baseAddress {
                    unsafe result.initialize(from: first, count: bytes.count)
                }
            }
            unsafe (result + bytes.count).initialize(to: 0)
            return unsafe result
        }
    }

    private func array<Element: BitwiseCopyable>(
        _ elements: [Element]
    ) -> UnsafeMutablePointer<Element> {
        let result = UnsafeMutablePointer<Element>.allocate(capacity: max(1, elements.count))
        unsafe pieces.append(result)
        unsafe result.initialize(from: elements, count: elements.count)
        return unsafe result
    }
}

extension UnsafeMutablePointer<UnsafeMutablePointer<CChar>?> {
    /// The same table, of constant strings.
    fileprivate var constant: UnsafeMutablePointer<UnsafePointer<CChar>?> {
        unsafe UnsafeMutableRawPointer(self).assumingMemoryBound(to: UnsafePointer<CChar>?.self)
    }
}
