import Glibc
import LinuxSystem
import TransferModel

/// An open file that several owners share; closed after the last.
final class OpenFile {
    private let descriptor: OwnedDescriptor

    init(_ descriptor: consuming OwnedDescriptor) { self.descriptor = descriptor }

    var rawValue: CInt { descriptor.rawValue }

    func size() throws(SystemError) -> Int64 {
        var status = stat()
        _ = try systemCall("fstat") { unsafe fstat(rawValue, &status) }
        return Int64(status.st_size)
    }

    func truncate(to bytes: Int64) throws(SystemError) {
        // ext4 would write it to the disk when it is closed.
        guard try size() != bytes else { return }
        _ = try systemCall("ftruncate") { ftruncate(rawValue, Int(bytes)) }
    }

    func write(_ bytes: UnsafeRawBufferPointer, at offset: Int64) throws(SystemError) {
        var written = 0
        while written < bytes.count {
            written += try systemCall("pwrite") {
                unsafe pwrite(
                    rawValue, bytes.baseAddress?.advanced(by: written), bytes.count - written,
                    Int(offset) + written)
            }
        }
    }
}

/// The files of the sessions: a directory for each session, with the data that a task has received and, for
/// an upload, the body that it sends.
struct SessionFiles {
    enum Part: String, CaseIterable {
        case data
        case body
    }

    private let directory: String
    /// Bytes of the file system that downloads leave free: the store needs some to remove a file.
    private let spare: UInt64
    /// How many bytes a download may write before it looks again whether there is room: all together write no more
    /// than is spare in between.
    let roomDistance: Int64
    /// Held while the process runs: another one would write to the same files.
    private let lock: OpenFile

    init(directory: String) throws(TransferError) {
        self.directory = directory
        do throws(SystemError) {
            try Self.makeDirectories(directory)
            try Self.makeDirectories(directory + "/sessions")
            lock = OpenFile(
                try OwnedDescriptor(opening: directory + "/lock", O_RDWR | O_CREAT | O_CLOEXEC, mode: 0o600))
        } catch {
            throw .system(error)
        }
        guard flock(lock.rawValue, LOCK_EX | LOCK_NB) == 0 else { throw .inUse(directory) }
        let size = Self.room(of: lock)?.size ?? .max
        spare = min(Self.mostSpare, size / 20)
        roomDistance = Int64(spare) / Int64(TransferQueue.Limits.mostParallel)
    }

    private static let mostSpare: UInt64 = 32 << 20

    /// Of the file system, in bytes; nil: it cannot be told.
    private static func room(of file: OpenFile) -> (size: UInt64, free: UInt64)? {
        var status = statvfs()
        guard unsafe fstatvfs(file.rawValue, &status) == 0 else { return nil }
        let unit = UInt64(status.f_frsize)
        return (UInt64(status.f_blocks) * unit, UInt64(status.f_bavail) * unit)
    }

    /// Whether a download may write so many bytes.
    func hasRoom(for bytes: Int64) -> Bool {
        guard let free = Self.room(of: lock)?.free else { return true }
        return free >= spare + UInt64(clamping: bytes)
    }

    var storePath: String { directory + "/transfers.sqlite" }

    private static func makeDirectories(_ path: String) throws(SystemError) {
        var end = path.startIndex
        while end < path.endIndex {
            end = path[path.index(after: end)...].firstIndex(of: "/") ?? path.endIndex
            let parent = String(path[..<end])
            guard unsafe mkdir(parent, 0o700) == 0 || errno == EEXIST else {
                throw SystemError("mkdir \(parent)")
            }
        }
    }

    private func directory(of session: SessionID) -> String { "\(directory)/sessions/\(session.rawValue)" }

    /// There is a directory for each session: the supervisor finds by them that there is something to do.
    func make(_ session: SessionID) { _ = unsafe mkdir(directory(of: session), 0o700) }

    func path(_ id: TaskID, of session: SessionID, _ part: Part) -> String {
        "\(directory(of: session))/\(id.rawValue).\(part.rawValue)"
    }

    /// For reading and writing; made if it is not there.
    func open(_ id: TaskID, of session: SessionID, _ part: Part) throws(SystemError) -> OpenFile {
        make(session)
        let flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW
        return OpenFile(try OwnedDescriptor(opening: path(id, of: session, part), flags, mode: 0o600))
    }

    /// The file that an upload sends; fails with ENOENT, if it is gone.
    func openBody(_ id: TaskID, of session: SessionID) throws(SystemError) -> OpenFile {
        OpenFile(
            try OwnedDescriptor(
                opening: path(id, of: session, .body), O_RDONLY | O_CLOEXEC | O_NOFOLLOW))
    }

    /// For the client, which gets a descriptor for reading.
    func openResult(_ id: TaskID, of session: SessionID) throws(SystemError) -> OpenFile {
        OpenFile(
            try OwnedDescriptor(
                opening: path(id, of: session, .data), O_RDONLY | O_CLOEXEC | O_NOFOLLOW))
    }

    /// 0 if there is none.
    func size(_ id: TaskID, of session: SessionID, _ part: Part) -> Int64 {
        var status = stat()
        return unsafe lstat(path(id, of: session, part), &status) == 0 ? Int64(status.st_size) : 0
    }

    /// Whether a client has linked the result to a name of its own: then its bytes are the client's.
    func isKept(_ id: TaskID, of session: SessionID) -> Bool {
        var status = stat()
        return unsafe lstat(path(id, of: session, .data), &status) == 0 && status.st_nlink > 1
    }

    func truncate(_ id: TaskID, of session: SessionID, to bytes: Int64) {
        _ = unsafe Glibc.truncate(path(id, of: session, .data), Int(bytes))
    }

    func remove(_ id: TaskID, of session: SessionID, _ parts: [Part] = Part.allCases) {
        for part in parts { _ = unsafe unlink(path(id, of: session, part)) }
    }

    func remove(_ session: SessionID) {
        let path = directory(of: session)
        for name in (try? SmallFile.names(in: path)) ?? [] { _ = unsafe unlink("\(path)/\(name)") }
        _ = unsafe rmdir(path)
    }

    /// Removes what no task has: the process ended before the store knew of it, or after the store had
    /// forgotten it.
    func sweep(keeping tasks: [TaskID: SessionID], sessions: Set<SessionID>) {
        let root = directory + "/sessions"
        for name in (try? SmallFile.names(in: root)) ?? [] {
            guard let number = Int64(name) else { continue }
            let session = SessionID(number)
            guard sessions.contains(session) else {
                remove(session)
                continue
            }
            for file in (try? SmallFile.names(in: "\(root)/\(name)")) ?? [] {
                let number = Int64(file.prefix { $0 != "." })
                if let number, tasks[TaskID(number)] == session { continue }
                _ = unsafe unlink("\(root)/\(name)/\(file)")
            }
        }
    }
}
