import EdgeTestSupport
import Glibc
import LinuxSystem
import SwiftProtobuf
import TransferClient
import TransferWire

/// `nightbell-transfer` with the test in place of the supervisor that starts it.
final class DemandedProcess {
    private let directory: TemporaryDirectory
    private let arguments: [String]
    private let environment: [String: String]
    private var link: SeqPacketSocket
    private var process: Child
    private(set) var lastPlan = WireTransferPlan()
    private var buffer = PacketBuffer(capacity: TransferPacket.maximumBytes)

    private static let isRoot = geteuid() == 0
    var socket: String { directory.path + "/own/socket" }

    init(_ options: [String] = [], environment: [String: String] = [:]) throws {
        self.environment = environment
        directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        mkdir(directory.path + "/own", 0o700)
        if Self.isRoot { chown(directory.path + "/own", 65534, 65534) }
        arguments =
            ["--supervised", "--directory", directory.path + "/own/data", "--first-delay", "50"]
            + (Self.isRoot ? ["--user", "65534"] : []) + options
        let (own, theirs) = try Self.pair()
        link = SeqPacketSocket(adopting: OwnedDescriptor(adopting: own))
        let other = SeqPacketSocket(adopting: OwnedDescriptor(adopting: theirs))
        process = try Self.start(arguments, environment, socket: directory.path + "/own/socket", other)
    }

    private static func start(
        _ arguments: [String], _ environment: [String: String], socket: String,
        _ link: borrowing SeqPacketSocket
    ) throws -> Child {
        unlink(socket)
        let listener = try SeqPacketSocket.listen(path: socket, mode: 0o600)
        if isRoot { chown(socket, 65534, 65534) }
        return try Child(
            product("nightbell-transfer"), arguments, environment: environment,
            descriptors: [3: link.rawValue, 4: listener.rawValue])
    }

    static func pair() throws -> (own: Int32, theirs: Int32) {
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue)
        _ = try systemCall("socketpair") { socketpair(AF_UNIX, type, 0, &ends) }
        return (ends[0], ends[1])
    }

    /// It is killed, and another one started.
    ///
    /// - Parameter statements: of SQL, for the store in between.
    func restart(_ statements: String...) throws {
        process.end()
        lastPlan = WireTransferPlan()
        for statement in statements { _ = try query(statement) }
        let (own, theirs) = try Self.pair()
        link = SeqPacketSocket(adopting: OwnedDescriptor(adopting: own))
        let other = SeqPacketSocket(adopting: OwnedDescriptor(adopting: theirs))
        process = try Self.start(arguments, environment, socket: socket, other)
    }

    /// The rows of the store that a statement gives, as Python writes them.
    func query(_ statement: String) throws -> String {
        let code =
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], 20); r = c.execute(sys.argv[2]).fetchall(); c.commit(); print(r)"
        return try output(
            "/usr/bin/python3", "-c", code, directory.path + "/own/data/transfers.sqlite", statement
        ).text
    }

    func signal(_ number: CInt) { kill(process.pid, number) }

    func demand(_ change: (inout WireTransferDemand) -> Void) throws {
        let bytes: [UInt8] = try WireTransferDemand.with(change).serializedBytes()
        guard try link.send(bytes) else { throw TimedOut() }
    }

    /// A subscription of the client "test", once it is ready for clients.
    func subscribe(to url: String, every interval: UInt64 = 86_400) throws {
        try demand {
            $0.subscriptions.subscriptions = [
                .with {
                    $0.client = "test"
                    $0.url = url
                    $0.intervalS = interval
                }
            ]
        }
    }

    /// The next notice; nil: none within the time.
    func notice(within milliseconds: Int64 = 60_000) throws -> WireTransferNotice? {
        let deadline = BootClock.now() + milliseconds * 1_000_000
        while true {
            switch try link.receive(into: &buffer) {
            case .packet:
                let notice = try WireTransferNotice(serializedBytes: buffer.bytes)
                if case .plan(let plan) = notice.notice { lastPlan = plan }
                return notice
            case .end: throw Unexpected("the process has ended")
            case .wouldBlock:
                let left = (deadline - BootClock.now()) / 1_000_000
                guard left > 0 else { return nil }
                _ = Poll.wait(
                    link.rawValue, for: .readable, timeoutMilliseconds: CInt(clamping: left))
            }
        }
    }

    /// The next end; plans before it are passed over.
    func end(within milliseconds: Int64 = 60_000) throws -> WireTransferEnd? {
        let deadline = BootClock.now() + milliseconds * 1_000_000
        while true {
            let left = max(0, (deadline - BootClock.now()) / 1_000_000)
            guard let notice = try notice(within: left) else { return nil }
            if case .end(let end) = notice.notice { return end }
        }
    }

    /// Waits until this holds for the last plan.
    func waitForPlan(_ holds: (WireTransferPlan) -> Bool) throws {
        while !holds(lastPlan) {
            guard try notice() != nil else { throw TimedOut() }
        }
    }

    func open(_ session: String) throws -> TransferClient {
        let client = try TransferClient(path: socket)
        try client.open(client: "test", session)
        return client
    }

    /// How the process ends by itself.
    func exitCode() throws -> CInt {
        let handle = try process.handle()
        _ = Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 60_000)
        process.reap()
        return process.status >> 8
    }
}
