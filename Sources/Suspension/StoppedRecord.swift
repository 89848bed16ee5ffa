import CLinux
import Glibc
import LinuxSystem

/// The stopped processes, in a file that survives this one: 16 bytes per slot, the pid and the start time,
/// zero for none.
final class StoppedRecord {
    struct Entry: Hashable {
        let pid: pid_t
        let startTime: UInt64
    }

    private static let size = 16
    private let file: OwnedDescriptor

    static func path(of instance: InstancePaths) -> String { instance.runtimeDirectory + "/stopped" }

    init(instance: InstancePaths) throws(SuspensionError) {
        let path = Self.path(of: instance)
        do {
            file = try OwnedDescriptor(opening: path, O_RDWR | O_CREAT | O_NOFOLLOW, mode: 0o600)
        } catch {
            throw SuspensionError("open \(path)", error)
        }
    }

    func set(_ slot: UInt32, pid: pid_t, startTime: UInt64) throws(SystemError) {
        let rawValue = file.rawValue
        let words = [UInt64(UInt32(bitPattern: pid)), startTime]
        _ = try systemCall("pwrite stopped") {
            unsafe pwrite(rawValue, words, Self.size, off_t(slot) * off_t(Self.size))
        }
    }

    /// The process recorded in this slot.
    func entry(_ slot: UInt32) -> Entry? {
        var words: [UInt64] = [0, 0]
        let rawValue = file.rawValue
        let count = try? systemCall("pread stopped") {
            unsafe pread(rawValue, &words, Self.size, off_t(slot) * off_t(Self.size))
        }
        guard count == Self.size, let pid = pid_t(exactly: words[0]), pid > 0 else { return nil }
        return Entry(pid: pid, startTime: words[1])
    }

    /// A failure is harmless: a running process is continued once more at the next start.
    func clear(_ slot: UInt32) {
        try? set(slot, pid: 0, startTime: 0)
    }

    /// The records of an earlier run, if there are any. A torn last entry is ignored.
    static func entries(of instance: InstancePaths) -> [Entry] {
        guard let content = try? SmallFile.read(path(of: instance)) else { return [] }
        return unsafe content.withUnsafeBytes { bytes in
            stride(from: 0, to: bytes.count - bytes.count % size, by: size).compactMap { offset in
                let pid = unsafe bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
                let startTime = unsafe bytes.loadUnaligned(fromByteOffset: offset + 8, as: UInt64.self)
                guard let pid = pid_t(exactly: pid), pid > 0 else { return nil }
                return Entry(pid: pid, startTime: startTime)
            }
        }
    }

    static func erase(of instance: InstancePaths) {
        _ = unsafe truncate(path(of: instance), 0)
    }
}
