import CLibevent
import Glibc

/// A watch's memory: libevent's part, with what the watch's events carry in the place of a timeout, which libevent
/// touches only where there is one, and no watch has one. Two cache lines. Its callback finds everything else from its
/// address.
@unsafe
struct WatchRecord {
    var event: event

    var token: UInt64 {
        get { unsafe UInt64(bitPattern: Int64(event.ev_timeout.tv_sec)) }
        set { unsafe event.ev_timeout.tv_sec = Int(Int64(bitPattern: newValue)) }
    }

    var isMarked: Bool {
        get { unsafe event.ev_timeout.tv_usec != 0 }
        set { unsafe event.ev_timeout.tv_usec = newValue ? 1 : 0 }
    }
}

/// The memory of all watches of a loop, in chunks that are given back when they are empty: a supervisor holds one
/// record for each parked socket, and a block of the heap for each would cost a fifth more.
///
/// Confined to the loop's thread, as watches are.
@safe
final class WatchPool {
    /// The beginning of a chunk, which lies at a multiple of its size.
    @unsafe
    private struct Chunk {
        let pool: Unmanaged<WatchPool>
        let gathering: UnsafeMutablePointer<Gathering>
        /// Records used before and free now; each begins with the address of the next.
        var free: UnsafeMutableRawPointer?
        /// Records used up to now, free ones among them.
        var used = 0
        var live = 0
        /// Among the chunks with room.
        var next: UnsafeMutablePointer<Chunk>?
        var previous: UnsafeMutablePointer<Chunk>?
    }

    private static let chunkSize = 64 * 1_024
    private static let firstRecord = 64
    private static let capacity = unsafe (chunkSize - firstRecord) / MemoryLayout<WatchRecord>.stride

    private let gathering: UnsafeMutablePointer<Gathering>
    private var withRoom: UnsafeMutablePointer<Chunk>?
    private var live = 0
    /// The loop that the records are linked into: it lives as long as any of them.
    private var executor: LoopExecutor?

    init(gathering: UnsafeMutablePointer<Gathering>) {
        unsafe self.gathering = gathering
        unsafe precondition(MemoryLayout<Chunk>.size <= Self.firstRecord, "a chunk's beginning fits")
    }

    /// Memory for one record, not initialized. Crashes when there is none to be had, as the heap does.
    func allocate(for executor: LoopExecutor) -> UnsafeMutablePointer<WatchRecord> {
        let chunk = unsafe withRoom ?? makeChunk()
        let place: UnsafeMutableRawPointer
        if let free = unsafe chunk.pointee.free {
            unsafe chunk.pointee.free = free.load(as: UnsafeMutableRawPointer?.self)
            unsafe place = free
        } else {
            let offset = unsafe Self.firstRecord + chunk.pointee.used * MemoryLayout<WatchRecord>.stride
            unsafe place = UnsafeMutableRawPointer(chunk) + offset
            unsafe chunk.pointee.used += 1
        }
        unsafe chunk.pointee.live += 1
        if unsafe chunk.pointee.live == Self.capacity { unsafe unlink(chunk) }
        live += 1
        self.executor = executor
        return unsafe place.bindMemory(to: WatchRecord.self, capacity: 1)
    }

    /// Takes a record back, whichever pool it is of.
    static func deallocate(_ record: UnsafeMutablePointer<WatchRecord>) {
        let chunk = unsafe Self.chunk(of: record)
        // The loop, and with it the pool, may end with its last watch.
        let pool = unsafe chunk.pointee.pool.takeUnretainedValue()
        unsafe pool.deallocate(UnsafeMutableRawPointer(record), chunk)
    }

    private func deallocate(_ record: UnsafeMutableRawPointer, _ chunk: UnsafeMutablePointer<Chunk>) {
        if unsafe chunk.pointee.live == Self.capacity { unsafe link(chunk) }
        unsafe record.storeBytes(of: chunk.pointee.free, as: UnsafeMutableRawPointer?.self)
        unsafe chunk.pointee.free = record
        unsafe chunk.pointee.live -= 1
        if unsafe chunk.pointee.live == 0 {
            unsafe unlink(chunk)
            unsafe munmap(chunk, Self.chunkSize)
        }
        live -= 1
        if live == 0 { executor = nil }
    }

    /// Where the callback of this record's events puts them.
    static func gathering(of record: UnsafeMutablePointer<WatchRecord>) -> UnsafeMutablePointer<Gathering> {
        unsafe chunk(of: record).pointee.gathering
    }

    private static func chunk(of record: UnsafeMutablePointer<WatchRecord>) -> UnsafeMutablePointer<Chunk> {
        let address = UInt(bitPattern: record) & ~UInt(chunkSize - 1)
        guard let chunk = unsafe UnsafeMutablePointer<Chunk>(bitPattern: address) else {
            preconditionFailure("a record lies in a chunk")
        }
        return unsafe chunk
    }

    // MARK: Chunks

    private func makeChunk() -> UnsafeMutablePointer<Chunk> {
        // Twice as much holds an aligned one; the rest is given back.
        let protection = PROT_READ | PROT_WRITE
        let flags = CInt(MAP_PRIVATE | MAP_ANONYMOUS)
        guard let start = unsafe mmap(nil, 2 * Self.chunkSize, protection, flags, -1, 0),
            unsafe start != MAP_FAILED
        else { fatalError("out of memory") }
        let before = (Self.chunkSize - Int(bitPattern: start) % Self.chunkSize) % Self.chunkSize
        if before > 0 { unsafe munmap(start, before) }
        let after = Self.chunkSize - before
        if after > 0 { unsafe munmap(start + before + Self.chunkSize, after) }
        let chunk = unsafe (start + before).bindMemory(to: Chunk.self, capacity: 1)
        unsafe chunk.initialize(to: Chunk(pool: Unmanaged.passUnretained(self), gathering: gathering))
        unsafe link(chunk)
        return unsafe chunk
    }

    private func link(_ chunk: UnsafeMutablePointer<Chunk>) {
        unsafe chunk.pointee.next = withRoom
        unsafe withRoom?.pointee.previous = chunk
        unsafe withRoom = chunk
    }

    private func unlink(_ chunk: UnsafeMutablePointer<Chunk>) {
        let next = unsafe chunk.pointee.next
        let previous = unsafe chunk.pointee.previous
        unsafe next?.pointee.previous = previous
        if let previous = unsafe previous {
            unsafe previous.pointee.next = next
        } else {
            unsafe withRoom = next
        }
        unsafe chunk.pointee.next = nil
        unsafe chunk.pointee.previous = nil
    }
}
