import EdgeTestSupport
import Glibc
import Launching
import LinuxSystem
import Testing

@Suite("Processes more confined than we are")
struct ConfinementTests {
    @Test("An ordinary child is not more confined")
    func free() throws {
        let child = try Child.echo()
        #expect(Confinement.reason(child.pid) == nil)
        #expect(Confinement.reason(getpid()) == nil)
    }

    @Test(
        "Another namespace, no new privileges, fewer capabilities, started by another user",
        .enabled(if: geteuid() == 0, "needs root"),
        arguments: [
            (["/usr/bin/unshare", "--mount"], "mnt namespace"),
            (["/usr/bin/unshare", "--net"], "net namespace"),
            (["/usr/bin/setpriv", "--no-new-privs"], "no privileges"),
            (["/usr/bin/setpriv", "--bounding-set", "-chown"], "all of our capabilities"),
            (["/usr/bin/setpriv", "--ruid", "4711"], "another user"),
            (["/usr/bin/setpriv", "--rgid", "4711", "--keep-groups"], "another user or group"),
            (["/usr/sbin/chroot", "/"], nil),
        ] as [([String], String?)])
    func confined(_ example: (command: [String], reason: String?)) throws {
        let child = try Child(example.command[0], Array(example.command.dropFirst()) + ["/bin/cat"])
        // It answers once it is confined.
        let channel = child.channel.rawValue
        var bytes: [UInt8] = [1]
        _ = try systemCall("write") { write(channel, bytes, 1) }
        #expect(!Poll.wait(channel, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
        _ = try systemCall("read") { read(channel, &bytes, 1) }
        let reason = Confinement.reason(child.pid)
        if let expected = example.reason {
            #expect(reason?.contains(expected) == true, "\(reason ?? "it is not")")
        } else {
            #expect(reason == nil)
        }
    }

    @Test("A process that is gone is not trusted")
    func gone() throws {
        let child = try Child.echo()
        child.end()
        #expect(Confinement.reason(child.pid)?.contains("cannot be inspected") == true)
    }
}
