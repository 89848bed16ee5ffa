import Glibc

/// Changes when a file does, or its owner or permissions do.
struct FileStamp: Sendable, Equatable {
    private var device: UInt64 = 0
    private var file: UInt64 = 0
    private var size: Int64 = 0
    private var written: Time?
    private var changed: Time?

    private struct Time: Equatable {
        let seconds: Int
        let nanoseconds: Int

        init(_ time: timespec) {
            seconds = time.tv_sec
            nanoseconds = time.tv_nsec
        }
    }

    /// - Parameter path: of a file, which need not be there.
    init(_ path: String) {
        var status = stat()
        guard stat(path, &status) == 0 else { return }
        device = UInt64(status.st_dev)
        file = UInt64(status.st_ino)
        size = Int64(status.st_size)
        written = Time(status.st_mtim)
        changed = Time(status.st_ctim)
    }
}
