import CChat
import CFloors
import Glibc
import LinuxSystem

/// Memory in which a process of chat clients reports. Only that process writes, and the harness reads after
/// it has answered; the progress is read at any time.
final class ChatSharedMemory {
    let descriptor: OwnedDescriptor
    /// The capacity of samples of each side.
    let calls: Int
    private let base: UnsafeMutableRawPointer

    /// Results other than samples.
    struct Report {
        var throughput = cchat_throughput()
        var deliveries = cchat_deliveries()
    }

    init(calls: Int) throws(LoadError) {
        let descriptor = cfloors_memory("nightbell-chat")
        guard descriptor >= 0 else { throw LoadError(failed: "memfd_create") }
        self.descriptor = OwnedDescriptor(adopting: descriptor)
        self.calls = calls
        guard ftruncate(descriptor, off_t(Self.length(calls))) == 0 else {
            throw LoadError(failed: "ftruncate")
        }
        base = try Self.map(descriptor, calls)
    }

    /// Maps the memory that another process has made, inherited as this descriptor.
    init(inherited descriptor: CInt, calls: Int) throws(LoadError) {
        self.descriptor = OwnedDescriptor(adopting: descriptor)
        self.calls = calls
        base = try Self.map(descriptor, calls)
    }

    deinit { munmap(base, Self.length(calls)) }

    private static let headerSize = 4_096

    private static func length(_ calls: Int) -> Int {
        headerSize + 2 * calls * MemoryLayout<cchat_sample>.stride
    }

    private static func map(
        _ descriptor: CInt, _ calls: Int
    ) throws(LoadError) -> UnsafeMutableRawPointer {
        let memory = mmap(nil, length(calls), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
        guard let memory, memory != MAP_FAILED else { throw LoadError(failed: "mmap") }
        return memory
    }

    var progress: UnsafeMutablePointer<cchat_progress> { base.assumingMemoryBound(to: cchat_progress.self) }

    var report: UnsafeMutablePointer<Report> {
        base.advanced(by: 64).assumingMemoryBound(to: Report.self)
    }

    /// The samples of a side, of which this is the first.
    func samples(_ side: Int) -> UnsafeMutablePointer<cchat_sample> {
        base.advanced(by: Self.headerSize).assumingMemoryBound(to: cchat_sample.self) + side * calls
    }
}
