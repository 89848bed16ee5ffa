import Launching
import Manifests
import NightbellCore
import Testing
import TransferModel

@Suite("Contents of manifests")
struct ManifestTests {
    @Test("A client needs a name and a command; everything else has a default")
    func small() throws {
        let file = read("identifier: org.example.phone\ncommand: [/usr/bin/phone]\n")
        #expect(file.problems.isEmpty)
        let manifest = try #require(file.manifests.first)
        #expect(manifest.identifier.description == "org.example.phone")
        #expect(manifest.modes == .voip && manifest.startsWithSupervisor && !manifest.exitsOnSuspend)
        #expect(manifest.launch.arguments == ["/usr/bin/phone"])
        #expect(manifest.identity?.user == 0 && manifest.launch.directory == "/root")
        #expect(
            manifest.keepAlive == nil && manifest.wakeLimitPolicy == .linger && manifest.launch.limits == [])
        #expect(manifest.line == 1)
    }

    @Test("Every key is understood")
    func everything() throws {
        let file = read(
            """
            identifier: org.example.phone.alice
            modes: [voip, audio, fetch, location, bluetooth-central, bluetooth-peripheral, external-accessory, newsstand]
            newsstand: {url: "https://example.org/a", every: 12h}
            command: [phone, --account, "a b", '']
            directory: /srv/phone
            environment: {LEVEL: '3', HOME: /elsewhere}
            user: alice
            group: audio
            groups: [video, 7]
            limits:
                openFiles: 256
                memory: 64M
                core: 0
                cpuTime: 1h
                stack: unlimited
            fileModeMask: 0027
            output: /var/log/phone.log
            keepAlive: 10m
            wakeLimitPolicy: terminate
            exitsOnSuspend: yes
            startsWithSupervisor: false
            waitsForUnlock: true
            """)
        #expect(file.problems.isEmpty, "\(file.problems)")
        let manifest = try #require(file.manifests.first)
        #expect(manifest.modes == Modes(Modes.named.map(\.mode)))
        #expect(manifest.identity == ProcessIdentity(user: 1_001, group: 29, otherGroups: [44, 7]))
        var launch = LaunchSpecification(
            arguments: ["phone", "--account", "a b", ""], directory: "/srv/phone")
        launch.environment = [
            "LEVEL": "3", "HOME": "/elsewhere", "USER": "alice", "LOGNAME": "alice", "SHELL": "/bin/sh",
            "PATH": LaunchSpecification.standardPath,
        ]
        launch.limits = [
            ResourceLimit(.openFiles, soft: 256, hard: 256),
            ResourceLimit(.memory, soft: 64 << 20, hard: 64 << 20),
            ResourceLimit(.core, soft: 0, hard: 0), ResourceLimit(.cpuTime, soft: 3_600, hard: 3_600),
            ResourceLimit(.stack, soft: .max, hard: .max),
        ]
        launch.fileModeMask = 0o027
        launch.output = "/var/log/phone.log"
        #expect(manifest.launch == launch)
        #expect(launch.problem == nil)
        #expect(manifest.keepAlive == .seconds(600) && manifest.wakeLimitPolicy == .terminate)
        #expect(manifest.newsstand?.url.text == "https://example.org/a")
        #expect(manifest.newsstand?.interval == 43_200)
        #expect(manifest.exitsOnSuspend && !manifest.startsWithSupervisor && manifest.waitsForUnlock)
    }

    @Test("Each document of a file is a client")
    func documents() {
        let file = read(
            """
            # two phones
            ---
            identifier: a
            command: [/p]
            ---
            identifier: b
            command: [/p]
            ---
            """)
        #expect(file.problems.isEmpty)
        #expect(file.manifests.map(\.identifier.description) == ["a", "b"])
        #expect(file.manifests.map(\.line) == [3, 6])
    }

    @Test("A per-user supervisor runs programs as its own user only")
    func perUser() {
        #expect(read("identifier: a\ncommand: [/p]\nuser: alice\n", reader: 1_001).problems.isEmpty)
        let other = read("identifier: a\ncommand: [/p]\nuser: bob\ngroups: [audio]\n", reader: 1_001)
        #expect(other.problems.map(\.line) == [3, 4])
        #expect(other.manifests.isEmpty)
        let own = read("identifier: a\ncommand: [/p]\n", reader: 1_001).manifests.first
        #expect(own?.identity?.user == 1_001 && own?.launch.directory == "/home/alice")
    }

    // MARK: Mistakes

    struct Mistake: CustomTestStringConvertible {
        var line: String
        var key: String
        var words: String
        var testDescription: String { line }

        init(_ line: String, _ key: String, _ words: String) {
            self.line = line
            self.key = key
            self.words = words
        }
    }

    static let mistakes = [
        Mistake("comand: [/p]", "comand", "is not a key; did you mean command?"),
        Mistake("keep-alive: 600s", "keep-alive", "did you mean keepAlive?"),
        Mistake("mode: [voip]", "mode", "did you mean modes?"),
        Mistake("modes: voip", "modes", "a list"),
        Mistake("modes: [viop]", "modes", "not 'viop'"),
        Mistake("directory: home", "directory", "absolute path"),
        Mistake("directory: [/]", "directory", "absolute path"),
        Mistake("environment: [A]", "environment", "names with values"),
        Mistake("environment: {'A=B': c}", "environment", "is not the name of a variable"),
        Mistake("environment: {A: [c]}", "environment.A", "expected a text"),
        Mistake("environment: {LISTEN_FDS: '1'}", "environment.LISTEN_FDS", "set by the supervisor"),
        Mistake("environment: {NIGHTBELL_SOCKET: /s}", "environment.NIGHTBELL_SOCKET", "set by the"),
        Mistake("user: carol", "user", "names no user of this machine: 'carol'"),
        Mistake("group: nogroup", "group", "names no group of this machine: 'nogroup'"),
        Mistake("groups: [audio, nogroup]", "groups", "names no group of this machine: 'nogroup'"),
        Mistake("groups: audio", "groups", "such as [audio, video]"),
        Mistake("limits: {openFiles: 0}", "limits.openFiles", "less than 5"),
        Mistake("limits: {processes: 0}", "limits.processes", "less than 1"),
        Mistake("limits: {memory: 1K}", "limits.memory", "less than 64K"),
        Mistake("limits: {stack: 0}", "limits.stack", "less than 16K"),
        Mistake(#"environment: {A: "a\0"}"#, "environment.A", "zero byte"),
        Mistake("limits: 3", "limits", "names with values"),
        Mistake("limits: {files: 3}", "limits.files", "is not a limit"),
        Mistake("limits: {openFiles: 1K}", "limits.openFiles", "a number such as 256"),
        Mistake("limits: {memory: 1KB}", "limits.memory", "64M"),
        Mistake("limits: {memory: -1}", "limits.memory", "64M"),
        Mistake("limits: {memory: 99999999999T}", "limits.memory", "64M"),
        Mistake("limits: {cpuTime: 1500ms}", "limits.cpuTime", "whole seconds"),
        Mistake("fileModeMask: 8", "fileModeMask", "octal"),
        Mistake("output: log", "output", "absolute path"),
        Mistake("keepAlive: soon", "keepAlive", "not 'soon'"),
        Mistake("keepAlive: 0", "keepAlive", "a duration"),
        Mistake("keepAlive: 2592001s", "keepAlive", "at most 30d"),
        Mistake("wakeLimitPolicy: kill", "wakeLimitPolicy", "linger or terminate"),
        Mistake("exitsOnSuspend: maybe", "exitsOnSuspend", "true or false"),
        Mistake("waitsForUnlock: maybe", "waitsForUnlock", "true or false"),
        Mistake("startsWithSupervisor: 1", "startsWithSupervisor", "true or false"),
        Mistake("unmodified: maybe", "unmodified", "true or false"),
        Mistake("newsstand: {url: 'https://a/'}", "newsstand", "needs the mode newsstand"),
        Mistake("modes: [newsstand]", "newsstand", "is missing"),
        Mistake("newsstand: daily\nmodes: [newsstand]", "newsstand", "expected url and every"),
        Mistake("newsstand: {every: 1d}\nmodes: [newsstand]", "newsstand.url", "is missing"),
        Mistake(
            "newsstand: {url: 'ftp://a/'}\nmodes: [newsstand]", "newsstand.url", "an address of http or https"
        ),
        Mistake(
            "newsstand: {url: 'http://a/', every: 1s}\nmodes: [newsstand]", "newsstand.every",
            "from 10m to 366d"),
        Mistake("newsstand: {url: 'http://a/', at: 6h}\nmodes: [newsstand]", "newsstand.at", "is not a key"),
        Mistake("newsstand: {url: 'https://a/'}\nmodes: [newsstand]", "newsstand", "a user other than root"),
        Mistake("timers: exact", "timers", "needs unmodified: true"),
        Mistake("idle: 1s", "idle", "needs unmodified: true"),
        Mistake("pageOut: 30s", "pageOut", "needs unmodified: true"),
        Mistake("firstByte: true", "firstByte", "needs unmodified: true"),
        Mistake("profiles: [irc]", "profiles", "needs unmodified: true"),
    ]

    @Test("Every mistake is reported with its line and key", arguments: mistakes)
    func mistake(_ mistake: Mistake) throws {
        let file = read("identifier: a\ncommand: [/p]\n\n\(mistake.line)\n")
        #expect(file.manifests.isEmpty)
        #expect(file.problems.count == 1)
        let problem = try #require(file.problems.first)
        #expect(problem.line == 4 && problem.key == mistake.key)
        #expect(problem.problem.contains(mistake.words), "\(problem)")
        #expect("\(problem)".hasPrefix("m.yaml:4: \(mistake.key) "))
    }

    @Test(
        "A program as it is is launched by the tool, with what differs from its defaults, and without limits of the tool's own"
    )
    func unmodified() throws {
        let file = read(
            """
            identifier: a
            command: [/p, --all]
            unmodified: true
            timers: ignore
            idle: 2min
            pageOut: 1500ms
            firstByte: true
            profiles: [irc, mqtt:1884]
            limits: {openFiles: 64, core: unlimited}
            """)
        #expect(file.problems.isEmpty, "\(file.problems)")
        let manifest = try #require(file.manifests.first)
        #expect(manifest.unmodified?.timers == .ignore && manifest.unmodified?.idle == .seconds(120))
        let launch = manifest.launch(with: "/bin/nightbell")
        let expected =
            "/bin/nightbell run --unmodified --identifier=a --timers ignore --idle 120s --page-out 1500ms --first-byte "
            + "--profile irc:6667 --profile mqtt:1884 --limit openFiles=64 --limit core=unlimited -- /p --all"
        #expect(launch.arguments == expected.split(separator: " ").map(String.init))
        #expect(launch.limits.isEmpty && launch.environment == manifest.launch.environment)
        let late = try #require(
            read("identifier: a\ncommand: [/p]\nunmodified: true\ntimers: coalesce=1min\n").manifests.first)
        #expect(late.unmodified?.timers == .coalesce(.seconds(60)))
        #expect(late.launch(with: "/n").arguments.contains("coalesce=60s"))
        let plain = try #require(read("identifier: a\ncommand: [/p]\nunmodified: true\n").manifests.first)
        #expect(plain.launch(with: "/n").arguments.suffix(3) == ["--identifier=a", "--", "/p"])
        let other = try #require(read("identifier: a\ncommand: [/p]\nunmodified: no\n").manifests.first)
        #expect(other.launch(with: "/n") == other.launch)
    }

    @Test(
        "A key that means nothing to a program as it is is a mistake",
        arguments: [
            Mistake("timers: never", "timers", "expected exact, ignore, or coalesce="),
            Mistake("timers: coalesce", "timers", "not 'coalesce'"),
            Mistake("timers: coalesce=2d", "timers", "at most a day"),
            Mistake("timers: [exact]", "timers", "expected exact, ignore, or coalesce="),
            Mistake("idle: 10ms", "idle", "from 100ms to 1h"),
            Mistake("idle: soon", "idle", "not 'soon'"),
            Mistake("pageOut: 2h", "pageOut", "from 100ms to 1h"),
            Mistake("firstByte: 2", "firstByte", "true or false"),
            Mistake("profiles: irc", "profiles", "expected a list"),
            Mistake("profiles: [irc:6697]", "profiles", "are encrypted"),
            Mistake("profiles: [gopher]", "profiles", "not 'gopher'"),
            Mistake("modes: [audio]", "modes", "[voip] or []"),
            Mistake("keepAlive: 10m", "keepAlive", "means nothing"),
            Mistake("wakeLimitPolicy: linger", "wakeLimitPolicy", "means nothing"),
            Mistake("exitsOnSuspend: false", "exitsOnSuspend", "means nothing"),
        ])
    func unmodifiedMistake(_ mistake: Mistake) throws {
        let file = read("identifier: a\ncommand: [/p]\nunmodified: true\n\(mistake.line)\n")
        let problem = try #require(file.problems.first)
        #expect(file.problems.count == 1 && problem.line == 4 && problem.key == mistake.key)
        #expect(problem.problem.contains(mistake.words), "\(problem)")
    }

    @Test("A specification that is too long to be stored is a mistake")
    func length() {
        let value = String(repeating: "x", count: 60_000)
        let file = read("identifier: a\ncommand: [/p]\nenvironment: {A: \(value), B: \(value)}\n")
        #expect(file.manifests.isEmpty && file.problems.first?.problem.contains("65536") == true)
        let long = read("identifier: a\nenvironment:\n  A: x\n  B: \(value)\n  C: \(value)x\ncommand: [/p]\n")
        #expect(long.problems.map(\.line) == [5] && long.problems.map(\.key) == ["environment.C"])
        let command = read("identifier: a\nenvironment: {A: x}\ncommand: [/p, \(value), \(value)]\n")
        #expect(command.problems.map(\.line) == [3] && command.problems.map(\.key) == ["command"])
        // Each text counts four bytes more.
        let many = String(repeating: "x, ", count: 20_000)
        let problem = read("identifier: a\ncommand: [/p, \(many)]\nuser: alice\n").problems.first?.problem
        #expect(problem?.contains(" 4 beside each text included: there is room for 65536") == true)
        #expect(read("identifier: a\ncommand: [/p]\nenvironment: {A: \(value)}\n").problems.isEmpty)
    }

    @Test("All mistakes are reported, not only the first")
    func all() {
        let lines = ["identifier: a b", "command: /bin/sh -c true"] + Self.mistakes.map(\.line)
        // Keys that occur twice are a mistake of their own.
        var seen: Set<Substring> = []
        let distinct = lines.filter { seen.insert($0.prefix { $0 != ":" }).inserted }
        let file = read(distinct.joined(separator: "\n") + "\n")
        #expect(file.manifests.isEmpty)
        #expect(file.problems.map(\.line) == distinct.indices.map { $0 + 1 })
    }

    @Test("Of many mistakes the first ones are reported, and the number of the others")
    func many() {
        let limit = ManifestFile.problemLimit
        let lines = (0..<limit + 7).map { "key\($0): x" }
        let file = read("identifier: a\ncommand: [/p]\n" + lines.joined(separator: "\n") + "\n")
        #expect(file.problems.count == limit + 1)
        #expect(file.problems.dropLast().map(\.line) == (3..<limit + 3).map { $0 })
        #expect(file.problems.last?.description == "m.yaml: has 7 more mistakes")
    }

    @Test("Missing keys are reported, and text that is no manifest")
    func structure() {
        #expect(read("modes: [voip]\n").problems.map(\.key) == ["command", "identifier"])
        #expect(read("[1, 2]\n").problems.map(\.problem) == ["expected keys with values"])
        #expect(read("").problems.map(\.problem) == ["declares no client"])
        #expect(read("# nothing\n").problems.map(\.problem) == ["declares no client"])
        #expect(read("identifier: a\ncommand: []\n").problems.map(\.problem) == ["has no program"])
        #expect(read("identifier: a\ncommand: [bin/p]\n").problems.map(\.line) == [2])
        #expect(read("identifier: a\ncommand: [[p]]\n").problems.map(\.key) == ["command", "command"])
        let syntax = read("identifier: a\ncommand: [/p\nuser: alice\n").problems
        #expect(syntax.count == 1 && syntax.first?.line != nil)
        let twice = read("identifier: a\ncommand: [/p]\ncommand: [/q]\n").problems
        #expect(twice.map(\.description) == ["m.yaml:3: command is written in line 2 already"])
        let nested = read(
            "identifier: a\ncommand: [/p]\n---\nidentifier: b\nenvironment:\n  A: x\n  'B': y\n\n  # B\n  B: z\n  A : x\n"
        ).problems
        #expect(nested.map(\.line) == [10, 11] && nested.map(\.key) == ["B", "A"])
        #expect(nested.map(\.problem) == [7, 6].map { "is written in line \($0) already" })
        let braces = read("identifier: a\ncommand: [/p]\nenvironment: {A: x, A: y}\n").problems
        #expect(braces.map(\.description) == ["m.yaml:3: A is written twice"])
        let modes = read("identifier: a\ncommand: [/p]\nmodes: voip\n").problems
        #expect(modes.map(\.problem) == ["expected a list, such as [voip] or [voip, audio]"])
        let broken = read("identifier: a\ncommand: [/p]\n---\nidentifier: b\n")
        #expect(broken.manifests.count == 1 && broken.problems.map(\.line) == [4])
    }

    @Test("A name is declared once")
    func namesakes() {
        let one = "identifier: a\ncommand: [/p]\n"
        let file = read(one + "---\n" + one)
        #expect(file.manifests.count == 1)
        #expect(
            file.problems.map(\.description) == ["m.yaml:4: identifier 'a' is declared in line 1 already"])
    }
}
