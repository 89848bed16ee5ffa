import CTestSupport
import EdgeTestSupport
import Foundation
import Glibc
import Launching
import LinuxSystem
import Testing

@Suite("The identity of launched programs", .enabled(if: geteuid() == 0, "needs root"))
struct IdentityTests {
    private static let nobody = ProcessIdentity(user: 4_711, group: 4_712, otherGroups: [4_713, 4_714])

    @Test("User and groups are set, all of them and no others")
    func identity() throws {
        let report = try Launched.run(
            ["/bin/grep", "-E", "^(Uid|Gid|Groups|Cap...):", "/proc/self/status"], as: Self.nobody)
        let values = report.lines.map { $0.split(separator: "\t").dropFirst().joined(separator: " ") }
        #expect(values[0] == "4711 4711 4711 4711")
        #expect(values[1] == "4712 4712 4712 4712")
        #expect(values[2].split(separator: " ") == ["4713", "4714"])
        // Inheritable, permitted, effective, (bounding,) ambient.
        for index in [3, 4, 5, 7] { #expect(values[index] == "0000000000000000", "\(report.lines[index])") }
    }

    @Test("The program, its directory and its output are opened as that user")
    func permissions() throws {
        let directory = try TemporaryDirectory()
        chmod(directory.path, 0o700)
        var order = LaunchOrder(LaunchSpecification(arguments: ["/bin/true"]), as: Self.nobody)
        order.specification.directory = directory.path
        var launch = try Launch.begin(order)
        guard case .failed(let error) = try Launched.outcome(of: &launch) else {
            Issue.record("it ran")
            return
        }
        #expect(error.step == .directory && error.code == EACCES)
        _ = try Launched.exitStatus(of: launch.process)
        order.specification.directory = "/"
        order.specification.output = directory.file("output")
        var other = try Launch.begin(order)
        guard case .failed(let second) = try Launched.outcome(of: &other) else {
            Issue.record("it ran")
            return
        }
        #expect(second.step == .output && second.code == EACCES)
        _ = try Launched.exitStatus(of: other.process)
    }

    @Test("Root's limits are raised before root is left")
    func limits() throws {
        let report = try Launched.shell("ulimit -Hn", as: Self.nobody) {
            $0.specification.limits = [ResourceLimit(.openFiles, soft: 100, hard: 20_000)]
        }
        #expect(report.output == "20000\n")
    }

    @Test("Without root the user cannot be changed")
    func unprivileged() throws {
        let order = LaunchOrder(
            LaunchSpecification(arguments: ["/bin/true"]),
            as: ProcessIdentity(user: 0, group: 0, otherGroups: []))
        // A thread of ours with another uid tries.
        let outcome = Monitored<LaunchError?>(nil)
        let thread = Thread {
            guard ctest_become(4_711) == 0, var launch = try? Launch.begin(order),
                case .failed(let error)? = try? Launched.outcome(of: &launch)
            else { return outcome.finish(nil) }
            _ = try? Launched.exitStatus(of: launch.process)
            outcome.finish(error)
        }
        thread.start()
        let error = outcome.wait()
        #expect(error?.step == .identity && error?.code == EPERM)
    }
}

extension IdentityTests {
    @Test(
        "The limits of another user's process can be read without a capability",
        .enabled(if: geteuid() == 0, "needs root"))
    func othersLimits() throws {
        let child = try Child("/usr/bin/prlimit", "--nofile=77:99", "/bin/cat")
        #expect(eventually { ProcFS.name(child.pid) == "cat" })
        let pid = child.pid
        let seen = Monitored<[ResourceLimit]?>(nil)
        let thread = Thread {
            seen.finish(ctest_become(4_711) == 0 ? try? ResourceLimit.differing(of: pid) : nil)
        }
        thread.start()
        #expect(seen.wait()?.contains(ResourceLimit(.openFiles, soft: 77, hard: 99)) == true)
    }
}

/// A value that another thread determines.
final class Monitored<Value>: @unchecked Sendable {
    private let condition = NSCondition()
    private var value: Value
    private var isFinished = false

    init(_ value: Value) { self.value = value }

    func finish(_ value: Value) {
        condition.withLock {
            self.value = value
            isFinished = true
            condition.broadcast()
        }
    }

    func wait() -> Value {
        condition.withLock {
            while !isFinished { condition.wait() }
            return value
        }
    }
}
