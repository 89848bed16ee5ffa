import Foundation
import Testing

@testable import LoadTester

/// Phones of a relaunch run, which the supervisor has to end, and errors of runs that cannot continue.
@Suite("Phones and failures of a run", .timeLimit(.minutes(40)))
struct RelaunchTests {
    private let directory = FileManager.default.temporaryDirectory.appendingPathComponent(
        "load-phones-\(UUID().uuidString)"
    ).path

    private func inDirectory(_ body: () throws -> Void) throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        try body()
    }

    private func message(_ body: () throws -> Void) -> String {
        do { try body() } catch { return "\(error)" }
        return ""
    }

    private func phone(_ script: String, _ runDirectory: RunDirectory) throws -> ChildProcess {
        try ChildProcess(
            "nightbell-phone", ["/bin/sh", "-c", script], log: "\(runDirectory.path)/nightbell-phone.log",
            environment: ["WORD": "a word"])
    }

    @Test("Waiting for a phone to be ended has a limit")
    func neverEnded() throws {
        let runDirectory = try RunDirectory.forTests()
        let phone = try phone("exec sleep 1000", runDirectory)
        let said = message {
            try DormantPhones.waitUntilEnded(phone, runDirectory, atMost: .milliseconds(100))
        }
        #expect(said.contains("gave up waiting for phones to be ended"))
    }

    @Test("A phone that ends by itself is reported with its last lines; a killed one has done its work")
    func endedByItself() throws {
        let runDirectory = try RunDirectory.forTests()
        let failing = try phone("echo $WORD >&2; exit 3", runDirectory)
        let said = message { try DormantPhones.waitUntilEnded(failing, runDirectory, atMost: .seconds(20)) }
        #expect(said.contains("status 3") && said.contains("a word"))
        let killed = try phone("kill -9 $$", runDirectory)
        try DormantPhones.waitUntilEnded(killed, runDirectory, atMost: .seconds(20))
    }

    @Test("scripts/build-phone builds a phone without shared libraries")
    func phoneProgram() throws {
        #expect(try PhoneProgram.needsLoader("/proc/self/exe"))
        try inDirectory {
            let root = URL(fileURLWithPath: #filePath)
                .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
            let script = Process()
            script.executableURL = root.appendingPathComponent("scripts/build-phone")
            script.arguments = [directory]
            try script.run()
            script.waitUntilExit()
            try #require(script.terminationStatus == 0)
            #expect(!(try PhoneProgram.needsLoader("\(directory)/nightbell-phone")))
        }
    }

    @Test("A phone ends with its parent")
    func deathOfTheParent() throws {
        try inDirectory {
            let runDirectory = try RunDirectory.forTests()
            // It sends its hello to a listener that never answers.
            let supervisor = socket(AF_UNIX, CInt(SOCK_SEQPACKET.rawValue), 0)
            defer { close(supervisor) }
            var address = sockaddr_un()
            address.sun_family = sa_family_t(AF_UNIX)
            let path = "\(directory)/s"
            withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
            let bound = withUnsafeBytes(of: &address) {
                bind(supervisor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t($0.count))
            }
            try #require(bound == 0 && listen(supervisor, 1) == 0)
            let parent = try ChildProcess(
                "sh",
                [
                    "/bin/sh", "-c",
                    "PHONE_PARENT=$$ \(runDirectory.programs)/nightbell-phone 1 0 & echo $! > \(directory)/pid; wait",
                ],
                log: "\(directory)/log", environment: ["NIGHTBELL_SOCKET": path, "PHONE_HELLO": "00"])
            var connected = pollfd(fd: supervisor, events: Int16(POLLIN), revents: 0)
            #expect(poll(&connected, 1, 20_000) == 1)
            var text = ""
            try wait(for: "its number", atMost: .seconds(20)) {
                text = (try? String(contentsOfFile: "\(directory)/pid", encoding: .utf8)) ?? ""
                return text.hasSuffix("\n")
            }
            let pid = try #require(pid_t(text.dropLast()))
            defer { kill(pid, SIGKILL) }
            #expect(kill(pid, 0) == 0)
            kill(parent.id, SIGKILL)
            try wait(for: "the phone to end", atMost: .seconds(20)) {
                let status = (try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)) ?? ""
                return status.isEmpty || status.contains(") Z ")
            }
        }
    }

    @Test("A supervisor that may not make cgroups is reported, with the method that needs none")
    func noCgroups() throws {
        try inDirectory {
            let real = try RunDirectory.forTests()
            try FileManager.default.createSymbolicLink(
                atPath: "\(directory)/nightbell-load", withDestinationPath: real.loadTester)
            // Written by another process: a process that another test forks at this moment would have the
            // file open, and a file that is open for writing cannot be executed.
            let path = "\(directory)/nightbelld"
            let writer = try ChildProcess(
                "sh",
                ["/bin/sh", "-c", "printf '#!/bin/sh\necho no; exit 77\n' > \(path); chmod 755 \(path)"],
                log: "\(directory)/log")
            try wait(for: "the program", atMost: .seconds(20)) { !writer.isRunning }
            for method in SuspensionMethod.allCases {
                let runDirectory = try RunDirectory(programs: directory, progress: Progress(quiet: true))
                let said = message { _ = try PrivateSupervisor(runDirectory, .init(suspension: method)) }
                #expect(said.contains("status 77: no"))
                #expect(said.contains("--suspend signal") == (method == .cgroup))
            }
        }
    }

    @Test("An unreachable program is named")
    func unreachable() {
        let said = message { _ = try Transport.unix.connect(to: "/nowhere/callers", as: 0) }
        #expect(said.contains("/nowhere/callers"))
    }

    @Test("A full disk is reported", .enabled(if: geteuid() == 0))
    func full() throws {
        try inDirectory {
            let real = try RunDirectory.forTests()
            let child = try ChildProcess(
                "sh",
                [
                    "/usr/bin/unshare", "-m", "/bin/sh", "-c",
                    "mount -t tmpfs -o size=64k none $TMPDIR && { cat /dev/zero > $TMPDIR/zeroes; "
                        + "\(real.loadTester) relaunch --quiet --clients 2 --first-clients 1; }",
                ],
                log: "\(directory).log", environment: ["TMPDIR": directory])
            defer { unlink("\(directory).log") }
            try wait(for: "the run to end", atMost: .seconds(60)) { !child.isRunning }
            let said = try String(contentsOfFile: "\(directory).log", encoding: .utf8)
            #expect(said.contains("no space is left in \(directory)"))
        }
    }
}
