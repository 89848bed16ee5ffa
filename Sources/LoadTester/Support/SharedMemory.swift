import CFloors
import Glibc
import LinuxSystem

/// One sleeper's place in the shared memory. The sleeper writes, the harness reads.
// @unchecked: the memory is mapped for the life of the process, and its fields are read and written
// atomically or ordered by one that is (`received`, `runs`, `stage`).
struct Slot: @unchecked Sendable {
    let pointer: UnsafeMutablePointer<cfloors_slot>

    enum Stage: UInt32 {
        case starting = 0
        case running = 1
        case waiting = 2
        case failed = 3
    }

    var stage: Stage {
        get { Stage(rawValue: cfloors_stage_of(pointer)) ?? .failed }
        nonmutating set { cfloors_set_stage(pointer, newValue.rawValue) }
    }
    var received: UInt64 { cfloors_received(pointer) }
    var runs: UInt64 { cfloors_runs(pointer) }
    var pid: pid_t { pointer.pointee.pid }
    /// From the moment before send(2) to the moment after the first read(2), of the last packet.
    var latency: Int64 { pointer.pointee.received_at - pointer.pointee.sent_at }
}

/// Memory that the harness and all sleepers map: a line for orders from the harness, then a slot for each
/// sleeper.
final class SharedMemory {
    let descriptor: OwnedDescriptor
    let count: Int
    private let base: UnsafeMutablePointer<cfloors_slot>

    /// Makes the memory.
    init(slots count: Int) throws(LoadError) {
        let descriptor = cfloors_memory("nightbell-load")
        guard descriptor >= 0 else { throw LoadError(failed: "memfd_create") }
        self.descriptor = OwnedDescriptor(adopting: descriptor)
        self.count = count
        guard ftruncate(descriptor, off_t(Self.length(count))) == 0 else {
            throw LoadError(failed: "ftruncate")
        }
        base = try Self.map(descriptor, count)
    }

    /// Maps the memory that another process has made, inherited as this descriptor.
    init(inherited descriptor: CInt, slots count: Int) throws(LoadError) {
        self.descriptor = OwnedDescriptor(adopting: descriptor)
        self.count = count
        base = try Self.map(descriptor, count)
    }

    deinit { munmap(base, Self.length(count)) }

    /// The capacity of the log. Pages are allocated as they are used.
    private static let logCapacity = 1 << 20

    private static func length(_ count: Int) -> Int {
        (count + 1) * MemoryLayout<cfloors_slot>.stride + (logCapacity + 1) * 8
    }

    private static func map(
        _ descriptor: CInt, _ count: Int
    ) throws(LoadError) -> UnsafeMutablePointer<cfloors_slot> {
        let memory = mmap(nil, length(count), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
        guard let memory, memory != MAP_FAILED else { throw LoadError(failed: "mmap") }
        return memory.bindMemory(to: cfloors_slot.self, capacity: count + 1)
    }

    subscript(index: Int) -> Slot {
        precondition(index < count)
        return Slot(pointer: base + index + 1)
    }

    /// An order of the harness to all sleepers: a number with a meaning of the run's own.
    var order: UInt32 {
        get { cfloors_stage_of(base) }
        set { cfloors_set_stage(base, newValue) }
    }

    private var log: UnsafeMutablePointer<cfloors_log> {
        UnsafeMutableRawPointer(base + count + 1).assumingMemoryBound(to: cfloors_log.self)
    }

    /// A closure that records a run of the keep-alive handler of the sleeper in this slot.
    func runRecorder(_ slot: Slot) -> @Sendable () -> Void {
        let log = UInt(bitPattern: self.log)
        return {
            cfloors_note_run(slot.pointer, UnsafeMutablePointer(bitPattern: log), UInt64(Self.logCapacity))
        }
    }

    /// The times of all handler runs, in order.
    var runTimes: [Int64] {
        let count = min(Int(log.pointee.count), Self.logCapacity)
        let times = UnsafeMutableRawPointer(log).advanced(by: 8).assumingMemoryBound(to: Int64.self)
        return UnsafeBufferPointer(start: times, count: count).sorted()
    }

    /// A time that one process records for the harness; 0: none yet.
    var notedTime: UnsafeMutablePointer<Int64> {
        UnsafeMutableRawPointer(base).advanced(by: 64).assumingMemoryBound(to: Int64.self)
    }
}
