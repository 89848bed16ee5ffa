import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

@Suite("Declared clients, with a real supervisor", .serialized)
struct DeclaredClientTests {
    /// A registrar that phones connect to; each sends a number first.
    private final class Registrar {
        let port: UInt16
        private let listener: CInt
        private(set) var lines: [UInt64: CInt] = [:]

        init() throws {
            listener = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_addr.s_addr = inet_addr("127.0.0.1")
            var length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let listener = listener
            let isBound = withUnsafeMutablePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(listener, $0, length) == 0 && listen(listener, 64) == 0
                        && getsockname(listener, $0, &length) == 0
                }
            }
            guard isBound else { throw Program.Failure(description: "no port") }
            port = UInt16(bigEndian: address.sin_port)
        }

        deinit {
            for line in lines.values { close(line) }
            close(listener)
        }

        func take(_ count: Int) throws {
            for _ in 0..<count {
                var entry = pollfd(fd: listener, events: Int16(POLLIN), revents: 0)
                guard poll(&entry, 1, 30_000) == 1 else {
                    throw Program.Failure(description: "no phone registers")
                }
                let line = accept(listener, nil, nil)
                var index: UInt64 = 0
                guard recv(line, &index, 8, CInt(MSG_WAITALL)) == 8 else {
                    throw Program.Failure(description: "no registration")
                }
                lines[index] = line
            }
        }

        /// Calls a phone, and waits for its answer: returns the process that answered.
        func call(_ index: UInt64) throws -> Int64 {
            var number = index &* 7 &+ 1
            guard let line = lines[index], send(line, &number, 8, CInt(MSG_NOSIGNAL)) == 8 else {
                throw Program.Failure(description: "phone \(index) has no line")
            }
            var entry = pollfd(fd: line, events: Int16(POLLIN), revents: 0)
            var answer: [Int64] = [0, 0, 0]
            guard poll(&entry, 1, 30_000) == 1, recv(line, &answer, 24, CInt(MSG_WAITALL)) == 24 else {
                throw Program.Failure(description: "phone \(index) does not answer")
            }
            #expect(answer[0] == Int64(number))
            return answer[2]
        }
    }

    private func manifest(_ index: Int, _ registrar: Registrar, more: String = "") -> String {
        """
        identifier: org.example.phone.\(index)
        command: [\(Program.product("nightbell-phone")), '\(registrar.port)', '\(index)']
        \(more)
        """
    }

    private func write(_ text: String, _ path: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        chmod(path, 0o644)
    }

    @Test("One that ends before it sends Hello is relaunched only after a crash")
    func endsEarly() throws {
        let manifests = try TemporaryDirectory()
        for (name, script) in [("well", "exit 0"), ("badly", "exit 3"), ("told", "kill -TERM $$")] {
            try write(
                "identifier: org.example.\(name)\ncommand: [/bin/sh, -c, '\(script)']\n",
                manifests.file("\(name).yaml"))
        }
        let stage = try Fixture([
            "--set", "manifestDirectory=\(manifests.path)", "--log-level", "debug",
            "--set", "launches.retry=10ms", "--set", "launches.relaunches=2",
        ])
        func count(_ text: String) -> Int { stage.daemon.errors.components(separatedBy: text).count - 1 }
        #expect(eventually(within: 30_000) { count("has ended before it said Hello: exit status 3") == 3 })
        for name in ["well", "told", "badly"] {
            #expect(
                try eventually(within: 30_000) {
                    try stage.nightbell("show", "org.example.\(name)").code == 4
                })
        }
        #expect(count("has ended before it said Hello: exit status 0") == 1)
        #expect(count("has ended before it said Hello: signal 15") == 1)
        for name in ["well", "told"] { #expect(count("org.example.\(name) runs as pid") == 1) }
        #expect(count("org.example.badly runs as pid") == 3)
    }

    @Test("A process that was not launched learns which client is in its way")
    func another() throws {
        let manifests = try TemporaryDirectory()
        try write(
            "identifier: org.example.slow\ncommand: [/bin/sleep, '1000']\n", manifests.file("slow.yaml"))
        let stage = try Fixture(["--set", "manifestDirectory=\(manifests.path)"])
        try stage.reaches("launching", "org.example.slow")
        let scripted = try Program(
            "nightbell",
            [
                "run", "--socket", stage.socket, "--identifier", "org.example.slow", "--",
                Program.product("scripted-client"),
            ])
        try scripted.say("hello org.example.slow voip")
        #expect(
            eventually(within: 30_000) {
                scripted.output.contains("or a process that it has started, must say Hello")
            })
    }

    @Test("A quit ends what a launched process has started, also in a session of its own")
    func quitOfASession() throws {
        let manifests = try TemporaryDirectory()
        let note = manifests.file("pid")
        try write(
            "identifier: org.example.apart\n"
                + "command: [setsid, --wait, /bin/sh, -c, 'echo $$ > \(note).new; mv \(note).new \(note); exec sleep 1000']\n",
            manifests.file("apart.yaml"))
        let stage = try Fixture(["--set", "manifestDirectory=\(manifests.path)"])
        #expect(eventually(within: 30_000) { access(note, F_OK) == 0 })
        let text = try String(contentsOfFile: note, encoding: .utf8)
        let sleeper = try #require(pid_t(text.trimmingCharacters(in: .whitespacesAndNewlines)))
        defer { kill(sleeper, SIGKILL) }
        #expect(getsid(sleeper) == sleeper)
        #expect(try stage.nightbell("quit", "org.example.apart").code == 0)
        #expect(eventually(within: 30_000) { kill(sleeper, 0) != 0 })
    }

    @Test("They are launched with the supervisor, sleep without a process, and answer calls")
    func boot() throws {
        let manifests = try TemporaryDirectory()
        let registrar = try Registrar()
        for index in 0..<12 { try write(manifest(index, registrar), manifests.file("phone-\(index).yaml")) }
        try write("identifier: broken\n", manifests.file("broken.yaml"))
        try write(
            manifest(99, registrar, more: "startsWithSupervisor: false"), manifests.file("later.yaml"))
        let stage = try Fixture(["--set", "manifestDirectory=\(manifests.path)"])
        try registrar.take(12)
        for index in 0..<12 { try stage.reaches("dormant", "org.example.phone.\(index)") }
        #expect(stage.daemon.errors.contains("broken.yaml:1: command is missing"))
        var processes: Set<Int64> = []
        for round in 0..<3 {
            for index in 0..<12 as Range<UInt64> { processes.insert(try registrar.call(index)) }
            #expect(processes.count == 12 * (round + 1), "each call is answered by a process of its own")
            for index in 0..<12 { try stage.reaches("dormant", "org.example.phone.\(index)") }
        }
        let show = try stage.nightbell("show", "org.example.phone.3")
        #expect(show.output.contains("dormant") && show.output.contains("nightbell-phone"), "\(show.output)")

        #expect(try stage.nightbell("show", "org.example.phone.99").code == 4)
        #expect(try stage.nightbell("launch", "org.example.phone.99").code == 0)
        try registrar.take(1)
        _ = try registrar.call(99)
        #expect(try stage.nightbell("quit", "org.example.phone.3").code == 0)
        #expect(try stage.nightbell("show", "org.example.phone.3").code == 4)
        #expect(try stage.nightbell("forget", "org.example.phone.4").code == 0)
        #expect(try stage.nightbell("show", "org.example.phone.4").code == 4)
        #expect(try stage.nightbell("launch", "org.example.phone.3").code == 0)
        try registrar.take(1)
        _ = try registrar.call(3)
        #expect(try stage.nightbell("launch", "nobody").code == 4)
    }

    @Test(
        "They run as the users that they are declared for",
        .enabled(if: geteuid() == 0, "needs root"))
    func users() throws {
        let manifests = try TemporaryDirectory()
        let registrar = try Registrar()
        try write(manifest(1, registrar, more: "user: nobody\ndirectory: /"), manifests.file("a.yaml"))
        let stage = try Fixture(["--set", "manifestDirectory=\(manifests.path)"])
        chmod(stage.directory.path, 0o755)
        try registrar.take(1)
        try stage.reaches("dormant", "org.example.phone.1")
        let object = try JSONSerialization.jsonObject(
            with: Data(stage.nightbell("show", "org.example.phone.1", "--json").output.utf8))
        let info = try #require(object as? [String: Any])
        #expect(info["uid"] as? Int == 65_534)
        #expect(info["can_launch"] as? Bool == true)
        _ = try registrar.call(1)
    }

    @Test(
        "The next supervisor knows the owner of an identifier",
        .enabled(if: geteuid() == 0, "needs root"))
    func ownership() throws {
        let state = try TemporaryDirectory()
        let arguments = ["--set", "stateDirectory=\(state.path)"]
        do {
            let stage = try Fixture(arguments)
            chmod(stage.directory.path, 0o755)
            let drop = [
                "--reuid", "4711", "--regid", "4711", "--clear-groups", "--",
                Program.product("scripted-client"),
            ]
            let scripted = try Program("/usr/bin/setpriv", drop)
            try scripted.say("hello org.example.taken voip socket=\(stage.socket)")
            try scripted.wrote("ok suspension")
            stage.daemon.send(signal: SIGTERM)
            #expect(try stage.daemon.outcome().code == 0)
        }
        let stage = try Fixture(arguments)
        let thief = try Program(Program.product("scripted-client"), [])
        try thief.say("hello org.example.taken voip socket=\(stage.socket)")
        try thief.wrote("error identifierOfOtherUser")
        #expect(try stage.nightbell("forget", "org.example.taken").code == 0)
        try thief.say("hello org.example.taken voip socket=\(stage.socket)")
        try thief.wrote("ok suspension")
    }

    @Test("A table of a later version keeps the supervisor from starting, and is not changed")
    func laterVersion() throws {
        let state = try TemporaryDirectory()
        let text = "nightbell-identifiers 3\nsomething else\nsum e9f16c96\n"
        try write(text, state.file("identifiers"))
        let directory = try TemporaryDirectory()
        let outcome = try Program.run(
            "nightbelld",
            ["--system", "--runtime-directory", directory.path, "--set", "stateDirectory=\(state.path)"])
        #expect(outcome.code != 0)
        #expect(outcome.errors.contains("version 3"), "\(outcome.errors)")
        #expect(try String(contentsOfFile: state.file("identifiers"), encoding: .utf8) == text)
    }
}
