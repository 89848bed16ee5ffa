import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// Real servers, without our code on the other side: the connection lives, every ping is answered, no wake;
/// then one message wakes once, complete and unmodified. For comparison, the same without a profile.
@Suite(.serialized, .timeLimit(.minutes(90))) struct ServerTests {
    // MARK: IRC

    private func ircServer() throws -> RealServer {
        try RealServer(
            "/usr/sbin/ngircd -n -f DIRECTORY/ngircd.conf",
            files: [
                "ngircd.conf": """
                [Global]
                Name = irc.example.org
                Info = test
                MotdPhrase = "welcome"
                Listen = 127.0.0.1
                Ports = PORT
                ServerUID = 0
                ServerGID = 0
                [Limits]
                PingTimeout = 4
                PongTimeout = 4
                MaxConnectionsIP = 0
                [Options]
                DNS = no
                Ident = no
                PAM = no
                """
            ])
    }

    private func joinIRC(_ scene: ServerScene, _ server: RealServer) throws {
        try scene.connect(server.port)
        try scene.say("NICK sleeper\r\nUSER sleeper 0 * :sleeper\r\n")
        try scene.hears(" 376 sleeper ")
        try scene.hears("\r\n")
    }

    @Test(.enabled(if: RealServer.isInstalled("/usr/sbin/ngircd")))
    func ngircd() throws {
        let server = try ircServer()
        let scene = try ServerScene()
        try joinIRC(scene, server)
        try scene.sleep("irc interval=10000 within=5000")
        let seconds = ServerScene.seconds(atLeast: 26)
        let counters = try scene.staysAsleep(seconds: seconds)
        // It pings when it received nothing for 4 s; our pings count as input.
        #expect(counters.answered >= UInt64(seconds / 12))
        #expect(counters.sent >= UInt64(seconds / 12) && counters.confirmed == counters.sent)
        let friend = try SecondClient(server)
        try friend.say("NICK friend\r\nUSER friend 0 * :friend\r\n")
        try friend.hears(" 376 ")
        try friend.say("PRIVMSG sleeper :are you there?\r\n")
        let read = String(decoding: try scene.wakesOnce(for: "\r\n"), as: UTF8.self)
        #expect(read == ":friend!~friend@127.0.0.1 PRIVMSG sleeper :are you there?\r\n")
        print("ngircd: \(seconds) s asleep, \(words(counters)), wakes 0, then 1")
    }

    @Test(.enabled(if: RealServer.isInstalled("/usr/sbin/ngircd")))
    func ngircdWithoutProfile() throws {
        let server = try ircServer()
        let scene = try ServerScene()
        try joinIRC(scene, server)
        try scene.sleep(nil)
        try scene.pass(seconds: 14)
        let wakes = try scene.info().counters["wakes"]
        #expect(wakes >= 2)
        print("ngircd without a profile: \(wakes) wakes in 14 s, and the connection lost")
    }

    // MARK: MQTT

    private static let broker = [
        "mosquitto.conf": "listener PORT 127.0.0.1\nallow_anonymous true\nuser root\npersistence false\n"
    ]

    private static func connect(_ name: String, keepAlive: UInt8) -> [UInt8] {
        let body =
            [0, 4] + Array("MQTT".utf8) + [4, 2, 0, keepAlive, 0, UInt8(name.utf8.count)] + Array(name.utf8)
        return [0x10, UInt8(body.count)] + body
    }

    private static func publish(_ topic: String, _ text: String) -> [UInt8] {
        let body = [0, UInt8(topic.utf8.count)] + Array(topic.utf8) + Array(text.utf8)
        return [0x30, UInt8(body.count)] + body
    }

    private func joinMQTT(_ scene: ServerScene, _ server: RealServer) throws {
        try scene.connect(server.port)
        try scene.say(Self.connect("sleeper", keepAlive: 5))
        #expect(try scene.hears(bytes: 4) == [0x20, 2, 0, 0])
        try scene.say([0x82, 6, 0, 1, 0, 1, 0x74, 0])
        #expect(try scene.hears(bytes: 5) == [0x90, 3, 0, 1, 0])
    }

    @Test(.enabled(if: RealServer.isInstalled("/usr/sbin/mosquitto")))
    func mosquitto() throws {
        let server = try RealServer("/usr/sbin/mosquitto -c DIRECTORY/mosquitto.conf", files: Self.broker)
        let scene = try ServerScene()
        try joinMQTT(scene, server)
        try scene.sleep("mqtt interval=5000 within=3000")
        let seconds = ServerScene.seconds(atLeast: 22)
        let counters = try scene.staysAsleep(seconds: seconds)
        #expect(counters.sent >= UInt64(seconds / 6) && counters.confirmed == counters.sent)
        let friend = try server.connected()
        defer { close(friend) }
        let packets = Self.connect("friend", keepAlive: 60) + Self.publish("t", "wake up")
        #expect(send(friend, packets, packets.count, 0) == packets.count)
        #expect(try scene.wakesOnce(for: "wake up") == Self.publish("t", "wake up"))
        print("mosquitto: \(seconds) s asleep, \(words(counters)), wakes 0, then 1")
    }

    @Test(.enabled(if: RealServer.isInstalled("/usr/sbin/mosquitto")))
    func mosquittoWithoutProfile() throws {
        let server = try RealServer("/usr/sbin/mosquitto -c DIRECTORY/mosquitto.conf", files: Self.broker)
        let scene = try ServerScene()
        try joinMQTT(scene, server)
        try scene.sleep(nil)
        try scene.pass(seconds: 14)
        #expect(try scene.info().counters["wakes"] == 1)
        try scene.scripted.event("eof")
        print("mosquitto without a profile: the connection lost after 7.5 s")
    }

    // MARK: IMAP

    private func imapServer() throws -> RealServer {
        try RealServer(
            "/usr/sbin/dovecot -F -c DIRECTORY/dovecot.conf",
            files: [
                "users": "sleeper:{PLAIN}secret:65534:65534::DIRECTORY/home\n",
                "dovecot.conf": """
                base_dir = DIRECTORY/run
                state_dir = DIRECTORY/state
                log_path = DIRECTORY/dovecot.log
                protocols = imap
                listen = 127.0.0.1
                ssl = no
                disable_plaintext_auth = no
                default_login_user = nobody
                default_internal_user = nobody
                default_internal_group = nogroup
                first_valid_uid = 1
                mail_location = maildir:DIRECTORY/home/Maildir
                imap_idle_notify_interval = 4 s
                service imap-login {
                  chroot =
                  inet_listener imap {
                    port = PORT
                  }
                  inet_listener imaps {
                    port = 0
                  }
                }
                service anvil {
                  chroot =
                }
                service stats {
                  chroot =
                }
                passdb {
                  driver = passwd-file
                  args = DIRECTORY/users
                }
                userdb {
                  driver = passwd-file
                  args = DIRECTORY/users
                }
                """,
            ],
            prepare:
                "mkdir -p home/Maildir/{new,cur,tmp} run state; chown -R nobody:nogroup home; chmod 755 ."
        )
    }

    private func joinIMAP(_ scene: ServerScene, _ server: RealServer) throws {
        try scene.connect(server.port)
        try scene.say("a1 LOGIN sleeper secret\r\n")
        try scene.hears("a1 OK ")
        try scene.say("a2 SELECT INBOX\r\n")
        try scene.hears("a2 OK ")
        try scene.hears("\r\n")
        try scene.say("a3 IDLE\r\n")
        try scene.hears("+ idling\r\n")
    }

    private func deliver(_ server: RealServer) throws {
        let mail = "\(server.directory)/home/Maildir/tmp/1.test"
        try "Subject: wake up\r\n\r\nhello\r\n".write(toFile: mail, atomically: true, encoding: .utf8)
        #expect(chown(mail, 65_534, 65_534) == 0)
        #expect(rename(mail, "\(server.directory)/home/Maildir/new/1.test") == 0)
    }

    @Test(.enabled(if: RealServer.isInstalled("/usr/sbin/dovecot")))
    func dovecot() throws {
        let server = try imapServer()
        let scene = try ServerScene()
        try joinIMAP(scene, server)
        try scene.sleep("imap interval=60000", "idle a3")
        // Long enough for one renewal, if the time allows.
        let seconds = ServerScene.seconds(atLeast: 65)
        let counters = try scene.staysAsleep(seconds: seconds)
        #expect(counters.absorbed >= UInt64(seconds / 6))
        #expect(counters.sent >= UInt64(seconds / 61) && counters.confirmed == counters.sent)
        try deliver(server)
        let read = String(decoding: try scene.wakesOnce(for: "RECENT\r\n"), as: UTF8.self)
        #expect(read == "* 1 EXISTS\r\n* 1 RECENT\r\n")
        // Each renewal has a tag of its own; before the first one it is still the client's.
        let sent = try scene.info().offload.sent
        let delegatedState = try scene.scripted.command("delegatedState flow")
        #expect(delegatedState == "idle \(sent == 0 ? "a3" : "NB\(sent)") idling", "\(delegatedState)")
        print("dovecot: \(seconds) s asleep, \(words(counters)), wakes 0, then 1")
    }

    @Test(.enabled(if: RealServer.isInstalled("/usr/sbin/dovecot")))
    func dovecotWithoutProfile() throws {
        let server = try imapServer()
        let scene = try ServerScene()
        try joinIMAP(scene, server)
        try scene.sleep(nil)
        try scene.pass(seconds: 13)
        let wakes = try scene.info().counters["wakes"]
        #expect(wakes >= 2)
        print("dovecot without a profile: \(wakes) wakes in 13 s")
    }

    private func words(_ counters: WireOffloadCounters) -> String {
        "sent \(counters.sent), confirmed \(counters.confirmed), answered \(counters.answered), "
            + "absorbed \(counters.absorbed), wakes avoided \(counters.wakesAvoided)"
    }
}
