import Glibc
import LinuxSystem
import Nightbell
import Suspension

/// Writes the memory of a sleeping program to swap, and counts by how much less it has then.
final class ProgramMemory {
    private let pageOut: PageOut
    private let end: End
    /// Why not all of it, or nothing, can be written; empty: there is no reason.
    let limit: String
    let mayWrite: Bool
    /// Before the present sleep.
    private var totalBefore: UInt64 = 0

    /// A flag that there is nothing left to write.
    private final class End: Sendable {
        let event: EventDescriptor
        init() throws(SystemError) { event = try EventDescriptor() }
    }

    /// All processes of the program are written together, and no others.
    private static let id: UInt64 = 0

    /// - Parameter name: of the program.
    init(_ process: borrowing ProcessHandle, _ name: String) throws(SystemError) {
        end = try End()
        pageOut = PageOut { [end] in try? end.event.signal() }
        mayWrite = PageOut.mayWrite(process)
        if !mayWrite {
            limit = "the memory of \(name) stays: CAP_SYS_NICE is needed to write it to swap"
        } else if !PageOut.hasSwap {
            limit = "there is no swap: only what \(name) has read from files leaves the memory"
        } else {
            limit = ""
        }
    }

    /// Readable when all was written, until `finish`.
    var descriptor: CInt { end.event.rawValue }

    /// The program has slept for long enough.
    func write(_ processes: [pid_t]) {
        totalBefore = pageOut.reclaimedBytes
        for pid in processes {
            // One that has ended meanwhile has no memory.
            guard let process = try? ProcessHandle(opening: pid) else { continue }
            try? pageOut.begin(Self.id, process)
        }
    }

    /// It is awake.
    func cancel() { pageOut.cancel(Self.id) }

    /// - Returns: what is to be told; nil: it is not all written yet.
    func finish() -> ClientInfo.PagedOut? {
        guard !Poll.now(descriptor).isEmpty else { return nil }
        _ = try? end.event.clear()
        return state
    }

    var state: ClientInfo.PagedOut {
        let total = pageOut.reclaimedBytes
        return ClientInfo.PagedOut(bytes: total - totalBefore, totalBytes: total, limit: limit)
    }
}
