import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

/// Two users with clients that have media, each with a bus of its session. Evidence in the session of one of
/// them is none about the clients of the other, and cannot delay them.
@Suite(
    "Sessions of several users", .serialized, .timeLimit(.minutes(40)),
    .enabled(if: geteuid() == 0, "becoming other users needs root"))
struct SessionTests {
    private static let path = "/org/mpris/MediaPlayer2"
    private static let player = "org.mpris.MediaPlayer2.Player"

    /// One of the accounts that every machine has (a bus does not run as a user without one), and that no
    /// other test uses.
    private final class User {
        let number: uid_t
        let bus: PrivateBus
        private let claim: SeqPacketSocket
        private let claimPath: String

        deinit { unlink(claimPath) }

        init() throws {
            for number in uid_t(1)...13 where getpwuid(number) != nil {
                // The path is taken until this ends, whichever process has it.
                let path = "/tmp/nightbell-test-uid-\(number)"
                guard let claim = try? SeqPacketSocket.listen(path: path, mode: 0o600) else { continue }
                claimPath = path
                self.number = number
                self.claim = claim
                bus = try PrivateBus(user: number)
                return
            }
            throw SupportError(text: "all accounts are in use")
        }

        var identity: [String] {
            ["/usr/bin/setpriv", "--reuid=\(number)", "--regid=\(number)", "--clear-groups"]
        }
    }

    /// A process of a user, with a child that is a media player on some session's bus.
    private final class Client {
        let name: String
        private let child: Child
        private let bus: PrivateBus
        private var playerName: String { "org.mpris.MediaPlayer2." + name }

        init(_ name: String, of user: User, playingOn bus: PrivateBus, _ supervisor: SupervisorProcess) throws
        {
            self.name = name
            self.bus = bus
            let play =
                "/usr/bin/python3 -m dbusmock --session org.mpris.MediaPlayer2.\(name) "
                + "\(SessionTests.path) org.mpris.MediaPlayer2 </dev/null >/dev/null 2>&1 &"
            child = try Child(
                user.identity[0],
                user.identity.dropFirst() + [
                    "/bin/sh", "-c", "\(play) exec '\(product("scripted-client"))'",
                ],
                environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address, "PATH": "/usr/bin:/bin"])
            try bus.waitForOwner(of: playerName)
            try tell("AddProperty", "PlaybackStatus", "<''>")
            try command("hello \(name) audio socket=\(supervisor.socket)")
        }

        private func tell(_ method: String, _ arguments: String...) throws {
            try check(
                try !output(
                    [
                        "/usr/bin/gdbus", "call", "--address", bus.address, "--dest", playerName,
                        "--object-path", SessionTests.path, "--method",
                        "org.freedesktop.DBus.Mock." + method, SessionTests.player,
                    ] + arguments
                ).isEmpty, "the player of \(name) does not \(method)")
        }

        func says(_ status: String) throws {
            try tell("UpdateProperties", "{'PlaybackStatus': <'\(status)'>}")
        }

        /// It may be asleep before it answers.
        func enterBackground() throws { try child.send("background\n") }

        private func command(_ text: String) throws {
            try child.send(text + "\n")
            while true {
                guard let answer = try child.hear(within: 60_000), !answer.contains("error ") else {
                    throw SupportError(text: "\(name) does not \(text)")
                }
                if answer.contains("ok") { return }
            }
        }
    }

    private func isKnown(_ supervisor: SupervisorProcess, of user: User) throws {
        let isKnown = try eventually(within: 60_000) {
            try supervisor.status().contains(
                "\"name\":\"audio of uid \(user.number)\",\"available\":false,\"reason\":\"PipeWire is not running"
            )
        }
        try check(isKnown, "the session of \(user.number) is not observed: \(try supervisor.status())")
    }

    @Test("The media of a user's session keeps that user's clients awake, and no other's")
    func sessions() throws {
        let alice = try User()
        let bob = try User()
        // Without PipeWire the end of a player's word is no silence: its client is held awake for that time.
        let supervisor = try SupervisorProcess(["budgets.mediaHold=2s"])
        func show(_ client: Client) throws -> String { try supervisor.show(client.name) }
        func hasMedia(_ client: Client) throws -> Bool {
            try eventually(within: 30_000) { try show(client).contains("\"media_active\":true") }
        }
        func isHeldAwake(_ client: Client) throws -> Bool {
            try eventually(within: 30_000) {
                let shown = try show(client)
                return shown.contains("\"state\":\"background\"") && shown.contains("(MPRIS)")
            }
        }

        let hers = try Client("alice.player", of: alice, playingOn: alice.bus, supervisor)
        let his = try Client("bob.player", of: bob, playingOn: bob.bus, supervisor)
        // His client, with a player in her session: her monitor reports a process of his.
        let guest = try Client("bob.guest", of: bob, playingOn: alice.bus, supervisor)
        try isKnown(supervisor, of: alice)
        try isKnown(supervisor, of: bob)
        // Each session has a monitor of its own, which runs as its user.
        let users = Set(try supervisor.processes().compactMap { ProcFS.uid($0) })
        #expect(users.isSuperset(of: [alice.number, bob.number]))
        try guest.says("Playing")
        try his.says("Paused")
        // Her monitor reports both by now.
        try hers.says("Playing")
        #expect(try hasMedia(hers))
        for client in [his, guest] { #expect(try show(client).contains("\"media_active\":false")) }
        for client in [hers, his, guest] { try client.enterBackground() }
        try supervisor.wait(for: his.name, toBe: "suspended")
        try supervisor.wait(for: guest.name, toBe: "suspended")
        #expect(try isHeldAwake(hers))

        // A peer in her session that does what no peer should.
        let hostile = try HostilePeer(alice.bus, .changes, target: ":1.0", seconds: 3)
        #expect(try hostile.finish() > 2_000)
        #expect(try isHeldAwake(hers))
        for client in [his, guest] {
            #expect(try show(client).contains("\"state\":\"suspended\""))
            #expect(try supervisor.wakes(of: client.name) == 0)
        }

        // The other way round: his media begins and holds his client awake, when hers has ended.
        let later = try Client("bob.later", of: bob, playingOn: bob.bus, supervisor)
        try later.says("Playing")
        #expect(try hasMedia(later))
        try later.enterBackground()
        try hers.says("Stopped")
        try supervisor.wait(for: hers.name, toBe: "suspended")
        #expect(try isHeldAwake(later))
        #expect(try supervisor.wakes(of: hers.name) == 0 && supervisor.wakes(of: his.name) == 0)
    }
}
