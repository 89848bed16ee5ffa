import Glibc

/// Changes when a file does.
struct FileStamp: Sendable, Equatable {
    private var file: UInt64 = 0
    private var size: Int64 = 0
    private var seconds: Int64 = 0
    private var nanoseconds: Int64 = 0

    /// - Parameter path: of a file, which need not be there.
    init(_ path: String) {
        var status = stat()
        guard stat(path, &status) == 0 else { return }
        file = UInt64(status.st_ino)
        size = Int64(status.st_size)
        seconds = Int64(status.st_mtim.tv_sec)
        nanoseconds = Int64(status.st_mtim.tv_nsec)
    }
}
