import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import Logging
import ProgramTestSupport
import PushService
import Testing

/// Processes of other users that take as much of the push service as they can get.
@Suite("Crowds at the push service", .enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct PushCrowdTests {
    /// A program of another user that speaks to the push service.
    private func stranger(_ fixture: GatewayFixture, user: Int = 65_533, _ body: String) throws -> Program {
        let program = """
            import os, resource, select, socket, sys, time
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            os.setgroups([]); os.setgid(\(user)); os.setuid(\(user))
            SUBSCRIBE, TAKE, SEND, LIST = 4, 6, 8, 9
            def connect():
                one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                one.connect(sys.argv[1])
                return one
            def varint(number):
                text = b""
                while number > 127:
                    text, number = text + bytes([number & 127 | 128]), number >> 7
                return text + bytes([number])
            def field(number, text): return varint(number << 3 | 2) + varint(len(text)) + text
            def request(number, client, kind, body=b""):
                return b"\\x08" + varint(number) + field(2, client.encode()) + field(kind, body)
            def ended(some, seconds, enough):
                # Those whose other end was closed.
                poll, gone = select.poll(), set()
                for one in some: poll.register(one, 0)
                deadline = time.monotonic() + seconds
                while len(gone) < enough and time.monotonic() < deadline:
                    for number, _ in poll.poll(100):
                        poll.unregister(number)
                        gone.add(number)
                return gone
            \(body)
            """
        return try Program("/usr/bin/python3", ["-c", program, fixture.pushStore + "/push.sock"])
    }

    @Test("Processes that ask and do not read are disconnected, and few of one user are waited for")
    func unread() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try fixture.sleeper()
        let crowd = try stranger(
            fixture,
            """
            first = connect()
            for number in range(1, 65):
                first.send(request(number, "own", SUBSCRIBE, field(1, b"%03d" % number + b"n" * 500)))
                first.recv(4096)
            deaf = [connect() for _ in range(40)]
            for one in deaf:
                one.setblocking(False)
                try:
                    for number in range(1, 100): one.send(request(number, "own", LIST))
                except OSError: pass
            print("asked", flush=True)
            print("at once", len(ended(deaf, 5, 24)), flush=True)
            print("all", len(ended(deaf, 30, 40)), flush=True)
            # This one reads.
            first.send(request(99, "own", LIST))
            print("answered", len(first.recv(131072)) > 30000, flush=True)
            """)
        try crowd.wrote("asked")
        #expect(try fixture.push(path, "beside the deaf") == 201)
        try client.wrote(" beside the deaf\n")
        let outcome = try crowd.outcome(within: 60_000)
        #expect(outcome.output == "asked\nat once 24\nall 40\nanswered True\n", "\(outcome)")
    }

    @Test("Two users that take all connections keep no other user from its messages")
    func manyConnections() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try fixture.sleeper()
        let crowds = try [65_533, 65_532].map { user in
            try stranger(
                fixture, user: user,
                """
                held = [connect() for _ in range(1100)]
                print("connected", 1100 - len(ended(held, 30, 76)), flush=True)
                time.sleep(600)
                """)
        }
        // As many as there may be. The one that was first may have lost some to the sleeper's request.
        for crowd in crowds { try crowd.wrote("connected 1024") }
        let other = try stranger(
            fixture, user: 65_531,
            """
            one = connect()
            one.send(request(1, "own", LIST))
            print(one.recv(4096).hex())
            """
        ).outcome()
        #expect(other.output == "08013a00\n", "\(other)")
        #expect(try fixture.push(path, "in a crowd") == 201)
        try client.wrote(" in a crowd\n")
        #expect(try fixture.get("/healthz").status == 200)
        for crowd in crowds { crowd.send(signal: SIGKILL) }
    }

    /// The transactions in the store's write-ahead log (sqlite.org/fileformat2.html, section 4).
    private func commits(_ fixture: GatewayFixture) throws -> Int {
        let path = fixture.pushStore + "/pushes.sqlite-wal"
        let log = [UInt8](try Data(contentsOf: URL(fileURLWithPath: path)))
        func number(_ offset: Int) -> Int { log[offset..<offset + 4].reduce(0) { $0 << 8 | Int($1) } }
        guard log.count >= 32 else { return 0 }
        let frame = 24 + number(8)
        return stride(from: 32, through: log.count - frame, by: frame).count {
            // The last frame of a transaction has the size of the database; a former log has other salts.
            number($0 + 4) != 0 && log[$0 + 8..<$0 + 16] == log[16..<24]
        }
    }

    @Test("Messages that many clients take at once cost one transaction, and are stored before")
    func takes() throws {
        let fixture = try GatewayFixture(pushes: true)
        let clients = try stranger(
            fixture,
            """
            some = [connect() for _ in range(20)]
            for one in some:
                one.send(request(1, "own", LIST))
                one.recv(4096)
            print("ready", flush=True)
            sys.stdin.readline()
            for number, one in enumerate(some):
                text = b"for %d" % number
                one.send(request(2, "own%d" % number, SEND, field(1, text) + b"\\x18\\x3c"))
                one.send(request(3, "own%d" % number, TAKE))
            print("asked", flush=True)
            taken = 0
            for number, one in enumerate(some):
                one.recv(4096)
                taken += b"for %d" % number in one.recv(4096)
            print("taken", taken, flush=True)
            """)
        try clients.wrote("ready")
        fixture.gateway.send(signal: SIGSTOP)
        #expect(eventually { threads(of: fixture.gateway.pid, are: "T") })
        try clients.say("go")
        try clients.wrote("asked")
        let before = try commits(fixture)
        fixture.gateway.send(signal: SIGCONT)
        try clients.wrote("taken 20")
        // The loop may hear of some of them in another turn.
        let more = try commits(fixture) - before
        #expect((1...5).contains(more), "\(more)")
    }

    private final class Peer {
        let socket: SeqPacketSocket

        init(_ path: String) throws { socket = try SeqPacketSocket.connect(path: path) }
    }

    /// Connections to a socket that are accepted: the others have no inode. One of those with one listens.
    private func accepted(_ path: String) throws -> Int {
        // Foundation reads only a part of it.
        let table = try Program.run("/bin/cat", ["/proc/net/unix"]).output
        let lines = table.split(separator: "\n").filter { $0.hasSuffix(" \(path)") }
        let inodes = lines.map { $0.split(separator: " ")[6] }
        return inodes.count { $0 != "0" } - 1
    }

    @Test("Few connections are accepted in a turn, however many come")
    func acceptsOfATurn() throws {
        let directory = try TemporaryDirectory()
        let path = directory.file("push.sock")
        let door = try PushDoor()
        let service = try PushService(
            PushService.Configuration(
                directory: directory.path, socket: path, supervisor: directory.file("none"),
                publicURL: "http://localhost"),
            door: door, logger: Logger(label: "test"))
        let peers = try (0..<100).map { _ in try Peer(path) }
        for _ in 0..<10 where try accepted(path) == 0 {
            // It ends with the turn in which it hears of that, which may be the second or third one.
            door.close()
            try service.run()
        }
        let count = try accepted(path)
        #expect((1...48).contains(count) && count % 16 == 0, "\(count)")
        withExtendedLifetime((service, peers)) {}
    }
}
