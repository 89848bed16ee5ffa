import Glibc
import LinuxSystem
import SwiftProtobuf
import TransferWire

/// A download or an upload of a ``TransferSession``.
public struct TransferTask: Sendable, Hashable {
    /// Identifies the task among all transfers of the user; never used again.
    public let number: Int64
    /// The client's own name for it.
    public let name: String
}

/// A header field of a request.
public struct TransferField: Sendable, Hashable {
    public var name: String
    public var value: String

    public init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }

    var wire: WireTransferField {
        .with {
            $0.name = name
            $0.value = value
        }
    }
}

/// How a transfer is made.
public struct TransferOptions: Sendable, Hashable {
    /// Of HTTP; empty: `GET` for a download, `PUT` for an upload. `POST` and `PATCH` are not repeated when it
    /// is not certain that the request was not served.
    public var method = ""
    public var fields: [TransferField] = []
    /// An address of `http`, `https`, `socks4`, `socks4a`, `socks5` or `socks5h`, such as `http://127.0.0.1:3128`;
    /// without a scheme, of `http`; empty: as the supervisor's environment says (`http_proxy`, `https_proxy`, `no_proxy`).
    public var proxy = ""
    /// Whether ``TransferResult/sha256`` is wanted.
    public var wantsSHA256 = false
    /// 32 bytes: a file with another SHA-256 is fetched anew, and after several attempts a failure. Empty:
    /// any.
    public var expectedSHA256: [UInt8] = []
    /// The task waits for a good moment: an unmetered network, power, and a machine that is not short of
    /// memory or processors. A download that runs stops when the moment is over, and is continued in the next
    /// one; a task that has not ended after seven days fails. The end of a session with such tasks alone is
    /// told to a client that sleeps together with another wake of the machine, after 15 minutes at the latest.
    public var isDiscretionary = false

    public init() {}
}

/// Why a transfer has failed.
public enum TransferFailure: Sendable, Hashable {
    /// The server's answer: ``TransferResult/status``.
    case status
    /// The content is encoded, although that was not asked for.
    case encoded
    /// The SHA-256 is not the expected one.
    case checksum
    /// It needs more room than the user's transfers may have.
    case tooLarge
    /// It was not finished in time.
    case timedOut
    /// The connection ended when the server may have done what was asked for, and it must not be asked twice.
    case interrupted
    /// The address, the certificate or the redirections will not become better.
    case refused(String)
    /// The server contradicts itself.
    case inconsistent
    case cancelled
    /// The file system has failed.
    case storage
    /// It is from a newer transfer process.
    case unrecognized

    init?(_ wire: WireTransferFinished) {
        switch wire.failure {
        case .none: return nil
        case .status: self = .status
        case .encoded: self = .encoded
        case .digest: self = .checksum
        case .tooLarge: self = .tooLarge
        case .timedOut: self = .timedOut
        case .interrupted: self = .interrupted
        case .refused: self = .refused(wire.reason)
        case .inconsistent: self = .inconsistent
        case .cancelled: self = .cancelled
        case .storage: self = .storage
        case .UNRECOGNIZED: self = .unrecognized
        }
    }
}

/// The end of a transfer.
public struct TransferResult: Sendable, Hashable {
    public let task: TransferTask
    /// nil: it has succeeded.
    public let failure: TransferFailure?
    /// Of HTTP; 0: there was no response.
    public let status: Int
    /// The length of the file, in bytes.
    public let bytes: UInt64
    /// The SHA-256 of the file, if it was asked for.
    public let sha256: [UInt8]?
    /// The response's body as a file that is open for reading; nil: there is none. It is closed, and removed,
    /// when the handler returns: read it until then, or ``keep(as:)`` it.
    public let file: CInt?

    init(_ wire: WireTransferFinished, file: CInt?) {
        task = TransferTask(number: wire.task, name: wire.tag)
        failure = TransferFailure(wire)
        status = Int(wire.status)
        bytes = wire.bytes
        sha256 = wire.digest.isEmpty ? nil : Array(wire.digest)
        self.file = file
    }

    /// Keeps the file under a name of the client's own, which must not exist. It is linked there or, on
    /// another file system, copied, and appears there whole or not at all. Only its user may read and write it
    /// (mode 0600). Call it before the handler returns.
    ///
    /// - Throws: ``NightbellError/Code/system``, with `EEXIST` if there is such a file.
    public func keep(as path: String) throws(NightbellError) {
        guard let file else { throw NightbellError(.invalidArgument, "the transfer has no file") }
        do throws(SystemError) {
            do throws(SystemError) {
                // It may be in memory only.
                _ = try systemCall("fdatasync") { fdatasync(file) }
                try Self.link(file, as: path)
            } catch {
                guard error.code == EXDEV || error.code == EPERM else { throw error }
                try Self.copy(file, to: path)
            }
        } catch {
            throw NightbellError(.system, error)
        }
    }

    private static func link(_ file: CInt, as path: String) throws(SystemError) {
        _ = try systemCall("linkat \(path)") {
            unsafe linkat(AT_FDCWD, "/proc/self/fd/\(file)", AT_FDCWD, path, AT_SYMLINK_FOLLOW)
        }
        // The process removes its own name for the file next. In a directory that may not be read the new one is
        // on the disk somewhat later.
        let parent = directory(of: path)
        if let directory = try? OwnedDescriptor(opening: parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC) {
            fsync(directory.rawValue)
        }
    }

    private static func directory(of path: String) -> String {
        path.lastIndex(of: "/").map { String(path[...$0]) } ?? "./"
    }

    /// The copy gets its name when it is whole and on the disk.
    private static func copy(_ file: CInt, to path: String) throws(SystemError) {
        let directory = Self.directory(of: path)
        do throws(SystemError) {
            let copy = try OwnedDescriptor(
                opening: directory, O_WRONLY | temporaryFile | O_CLOEXEC, mode: 0o600)
            try fill(copy, from: file)
            try link(copy.rawValue, as: path)
        } catch {
            guard [EOPNOTSUPP, EISDIR, EINVAL].contains(error.code) else { throw error }
            // The file system has no files without a name.
            let other = "\(directory).nightbell-\(getpid())-\(file)"
            let copy = try OwnedDescriptor(
                opening: other, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode: 0o600)
            defer { unsafe unlink(other) }
            try fill(copy, from: file)
            try link(copy.rawValue, as: path)
        }
    }

    private static func fill(_ copy: borrowing OwnedDescriptor, from file: CInt) throws(SystemError) {
        let target = copy.rawValue
        var offset: off_t = 0
        while try systemCall("sendfile", { unsafe sendfile(target, file, &offset, 1 << 20) }) > 0 {}
        _ = try systemCall("fsync", { fsync(target) })
    }

    /// `O_TMPFILE`, which C composes in a way that is not imported.
    private static let temporaryFile = 0o20_000_000 | O_DIRECTORY
}

/// The state of a transfer, as it is known.
public struct TransferStatus: Sendable, Hashable {
    public enum State: Sendable, Hashable {
        case waiting
        case running
        case needsCredentials
        case finished
    }

    public let task: TransferTask
    public let state: State
    /// Of the file, so far.
    public let receivedBytes: UInt64
    /// Of the file; nil: unknown.
    public let totalBytes: UInt64?

    init(_ wire: WireTransferStatus) {
        task = TransferTask(number: wire.task, name: wire.tag)
        state =
            switch wire.state {
            case .running: .running
            case .needsCredentials: .needsCredentials
            case .finished: .finished
            case .waiting, .UNRECOGNIZED: .waiting
            }
        receivedBytes = wire.receivedBytes
        totalBytes = wire.hasTotal ? wire.total.bytes : nil
    }
}

/// How far a transfer is.
public struct TransferProgress: Sendable, Hashable {
    /// ``TransferTask/number``.
    public let task: Int64
    public let receivedBytes: UInt64
    public let sentBytes: UInt64
    /// Of the response's body; nil: unknown.
    public let totalBytes: UInt64?

    init(_ wire: WireTransferProgress) {
        task = wire.task
        receivedBytes = wire.receivedBytes
        sentBytes = wire.sentBytes
        totalBytes = wire.hasTotal ? wire.total.bytes : nil
    }
}
