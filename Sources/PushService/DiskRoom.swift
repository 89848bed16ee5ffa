import Glibc
import LinuxSystem

/// The room that a store's disk has for more.
///
/// Removals take room, too, in the log before the database, and copying the log into the database may take as much
/// again: on a full disk neither is possible. So nothing is added that would leave less than removals need.
struct DiskRoom {
    private let directory: String
    private let logPath: String
    /// Room that is left for removals, in bytes.
    private static let spare: Int64 = 128 << 10

    init(directory: String, database: String) {
        self.directory = directory
        logPath = database + "-wal"
    }

    /// Of the file system, in bytes; nil: it cannot be told.
    var free: Int64? {
        var status = statvfs()
        guard unsafe statvfs(directory, &status) == 0 else { return nil }
        return Int64(clamping: UInt64(status.f_bavail) * UInt64(status.f_frsize))
    }

    private var logBytes: Int64 {
        var status = stat()
        return unsafe stat(logPath, &status) == 0 ? Int64(status.st_size) : 0
    }

    /// Whether there is so little room that the log has to be copied before more is written.
    ///
    /// - Parameter bytes: that will be written.
    func isShort(for bytes: Int64) -> Bool {
        guard let free else { return false }
        return free < logBytes + 2 * bytes + Self.spare
    }

    /// Whether so much may be added.
    ///
    /// - Parameter unused: room within the database, in bytes.
    func has(_ bytes: Int64, unused: Int64) -> Bool {
        guard let free else { return true }
        let growth = max(0, logBytes + bytes - unused)
        return free >= bytes + (growth > 0 ? growth + Self.spare : 0)
    }
}
