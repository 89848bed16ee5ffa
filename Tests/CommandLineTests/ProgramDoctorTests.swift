import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

@Suite("nightbell doctor PID: programs that know nothing of Nightbell")
struct ProgramDoctorTests {
    /// Asks until the program has come to where it waits: a second after its start it may still load.
    private func findings(_ pid: pid_t, until isDone: ([String: String]) -> Bool) throws -> [String: String] {
        var found: [String: String] = [:]
        for _ in 0..<10 where !isDone(found) {
            let outcome = try Program.run("nightbell", ["doctor", "\(pid)", "--seconds", "1", "--json"])
            let object = try JSONSerialization.jsonObject(with: Data(outcome.output.utf8))
            let all = try #require((object as? [String: Any])?["findings"] as? [[String: Any]])
            found = [:]
            for finding in all {
                found[try #require(finding["key"] as? String)] = finding["explanation"] as? String
            }
            let maySleep = found["sleep"]?.hasPrefix("may sleep") == true
            #expect(outcome.code == (maySleep ? 0 : 1), "\(outcome)")
        }
        return found
    }

    @Test("A program that waits for input may sleep")
    func waiting() throws {
        let child = try Child.echo()
        let found = try findings(child.pid) { $0["sleep"]?.hasPrefix("may sleep") == true }
        #expect(found["wait"] == "1 thread waits to read: 1 socket")
        #expect(found["process"]?.contains("(cat)") == true)
        #expect(found["memory"]?.contains("resident") == true)
    }

    @Test("A program that ticks must stay awake, and its timers are named")
    func ticking() throws {
        // It ends with the tests, even if these are killed.
        let child = try Child(
            "/usr/bin/python3",
            ["-c", "import os, time\np = os.getppid()\nwhile os.getppid() == p: time.sleep(0.1)"])
        let found = try findings(child.pid) {
            $0["sleep"]?.contains("it is never idle for a second") == true
                && $0["activity"]?.contains("it has timers") == true
        }
        #expect(found["sleep"]?.contains("it is never idle for a second") == true, "\(found)")
        #expect(found["activity"]?.contains("it has timers") == true, "\(found)")
    }

    @Test("Without rights it says so", .enabled(if: geteuid() == 0, "needs root"))
    func withoutRights() throws {
        let child = try Child.echo()
        let outcome = try Program.run(
            "/usr/bin/setpriv",
            [
                "--reuid", "4711", "--regid", "4711", "--clear-groups", "--", Program.product("nightbell"),
                "doctor",
                "\(child.pid)", "--seconds", "1",
            ])
        #expect(outcome.code == 1)
        #expect(outcome.output.contains("cannot be seen without more rights"), "\(outcome)")
        #expect(outcome.output.contains("It must stay awake."))
    }

    @Test("A process that is not there, and numbers out of range")
    func mistakes() throws {
        let absent = try Program.run("nightbell", ["doctor", "4194304", "--seconds", "1"])
        #expect(absent.code == 1)
        #expect(absent.output.contains("there is no process 4194304"))
        for arguments in [["0"], ["1", "--seconds", "0"], ["1", "--seconds", "3601"], ["x"]] {
            #expect(try Program.run("nightbell", ["doctor"] + arguments).code == 64, "\(arguments)")
        }
    }
}
