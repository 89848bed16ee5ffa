import CLinux
import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

@Suite struct ListeningTests {
    private let directory: TemporaryDirectory
    private var path: String { directory.file("socket") }

    init() throws {
        directory = try TemporaryDirectory()
    }

    @Test func acceptsAConnection() throws {
        let listener = try SeqPacketSocket.listen(path: path, mode: 0o600)
        let nobody = isMissing(try listener.accept())
        #expect(nobody)
        let client = try SeqPacketSocket.connect(path: path)
        let server = try require(try listener.accept())
        #expect(try client.send([1, 2]))
        var buffer = PacketBuffer()
        _ = try server.receive(into: &buffer)
        #expect(buffer.bytes == [1, 2])
    }

    @Test(arguments: [mode_t(0o600), 0o660, 0o666]) func theModeIsTheOneAskedFor(mode: mode_t) throws {
        let listener = try SeqPacketSocket.listen(path: path, mode: mode)
        var status = stat()
        #expect(stat(path, &status) == 0)
        #expect(status.st_mode & 0o777 == mode)
        _ = listener.rawValue
    }

    @Test func aStaleSocketIsReplaced() throws {
        _ = try SeqPacketSocket.listen(path: path, mode: 0o600)
        #expect(access(path, F_OK) == 0)
        // A process that another test starts has the listener, too, until it executes its program.
        #expect(eventually { hasNoListener })
        let listener = try SeqPacketSocket.listen(path: path, mode: 0o600)
        _ = try SeqPacketSocket.connect(path: path)
        let nobody = isMissing(try listener.accept())
        #expect(!nobody)
    }

    private var hasNoListener: Bool {
        do {
            _ = try SeqPacketSocket.connect(path: path)
            return false
        } catch {
            return error.code == ECONNREFUSED
        }
    }

    @Test func aLiveSocketIsRespected() throws {
        let listener = try SeqPacketSocket.listen(path: path, mode: 0o600)
        let error = #expect(throws: SystemError.self) {
            _ = try SeqPacketSocket.listen(path: path, mode: 0o600)
        }
        #expect(error?.code == EADDRINUSE)
        _ = try SeqPacketSocket.connect(path: path)
        let nobody = isMissing(try listener.accept())
        #expect(!nobody)
    }

    /// A full queue answers `EAGAIN`, not `ECONNREFUSED`.
    @Test func aBusySocketIsRespected() throws {
        let listener = try SeqPacketSocket.listen(path: path, mode: 0o600, backlog: 0)
        let first = try SeqPacketSocket.connect(path: path)
        let full = #expect(throws: SystemError.self) { _ = try SeqPacketSocket.connect(path: path) }
        #expect(full?.code == EAGAIN)
        let error = #expect(throws: SystemError.self) {
            _ = try SeqPacketSocket.listen(path: path, mode: 0o600)
        }
        #expect(error?.code == EADDRINUSE)
        _ = (listener.rawValue, first.rawValue)
    }

    @Test func aFileThatIsNoSocketIsRespected() throws {
        let file = try OwnedDescriptor(opening: path, O_WRONLY | O_CREAT, mode: 0o600)
        file.close()
        let error = #expect(throws: SystemError.self) {
            _ = try SeqPacketSocket.listen(path: path, mode: 0o600)
        }
        #expect(error?.code == EADDRINUSE)
        #expect(access(path, F_OK) == 0)
    }

    @Test func invalidPathsAreRefused() {
        let long = #expect(throws: SystemError.self) {
            _ = try SeqPacketSocket.connect(path: "/" + String(repeating: "x", count: 107))
        }
        #expect(long?.code == ENAMETOOLONG)
        let empty = #expect(throws: SystemError.self) { _ = try SeqPacketSocket.connect(path: "") }
        #expect(empty?.code == EINVAL)
        let missing = #expect(throws: SystemError.self) { _ = try SeqPacketSocket.connect(path: path) }
        #expect(missing?.code == ENOENT)
    }

    @Test func theKernelKnowsThePeer() throws {
        let listener = try SeqPacketSocket.listen(path: path, mode: 0o600)
        let client = try SeqPacketSocket.connect(path: path)
        let server = try require(try listener.accept())
        let credentials = try server.peerCredentials()
        #expect(credentials == PeerCredentials(pid: getpid(), uid: getuid(), gid: getgid()))
        let process = ProcessHandle(pidfd: try server.peerProcess(), pid: credentials.pid)
        try process.signal(0)
        let hasExited = process.hasExited
        #expect(!hasExited)
        _ = client.rawValue
    }

    /// In a process of its own, because the limit is the process's.
    @Test func aFullTableOfDescriptorsIsAnErrorThatPasses() async {
        await #expect(processExitsWith: .success) {
            let directory = try TemporaryDirectory()
            let path = directory.file("socket")
            let listener = try SeqPacketSocket.listen(path: path, mode: 0o600)
            let client = try SeqPacketSocket.connect(path: path)
            let reserve = try OwnedDescriptor(duplicating: 0)
            try limitDescriptors(to: reserve.rawValue + 1)
            let error = #expect(throws: SystemError.self) { _ = try listener.accept() }
            #expect(error?.code == EMFILE)
            reserve.close()
            let nobody = isMissing(try listener.accept())
            #expect(!nobody)
            _ = client.rawValue
        }
    }
}
