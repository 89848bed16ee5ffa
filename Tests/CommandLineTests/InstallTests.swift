import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

@Suite("scripts/install and scripts/uninstall", .serialized)
struct InstallTests {
    private let home: URL

    init() throws {
        home = URL(fileURLWithPath: "/tmp/nightbell-install-\(getpid())-\(UInt32.random(in: 0 ... .max))")
        try FileManager.default.createDirectory(at: home, withIntermediateDirectories: true)
    }

    private func run(_ script: String, _ arguments: [String] = [], _ variables: [String: String]) throws
        -> Program.Outcome
    {
        let repository = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        let binaries = URL(fileURLWithPath: Program.product("nightbell")).deletingLastPathComponent().path
        let environment = ["PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": home.path, "BINARIES": binaries]
        return try Program.run(
            repository.appendingPathComponent("scripts/\(script)").path, arguments,
            environment: environment.merging(variables) { $1 })
    }

    private func paths() throws -> [String] {
        let all = FileManager.default.enumerator(atPath: home.path)?.compactMap { $0 as? String } ?? []
        return all.filter { path in
            var isDirectory: ObjCBool = false
            let isThere = FileManager.default.fileExists(
                atPath: home.path + "/" + path, isDirectory: &isDirectory)
            return isThere && !isDirectory.boolValue
        }.sorted()
    }

    private func text(_ path: String) throws -> String {
        try String(contentsOfFile: home.path + "/" + path, encoding: .utf8)
    }

    @Test("Into an image: the printed files exist, and all but the configuration are removed again")
    func image() throws {
        defer { try? FileManager.default.removeItem(at: home) }
        let variables = ["DESTDIR": home.path, "PREFIX": "/opt/nightbell"]
        let installed = try run("install", [], variables)
        #expect(installed.code == 0, "\(installed)")
        let files = [
            "etc/nightbell/nightbelld.yaml", "etc/systemd/system/nightbelld.service",
            "opt/nightbell/bin/nightbell", "opt/nightbell/bin/nightbell-monitor",
            "opt/nightbell/bin/nightbell-transfer", "opt/nightbell/bin/nightbelld",
        ]
        #expect(try paths() == files)
        for part in [
            "Installed into \(home.path):", "/opt/nightbell/bin/nightbelld", "Nothing was started",
            "/etc/nightbell/nightbelld.yaml: every key with its default, commented out",
        ] {
            #expect(installed.output.contains(part), "\(installed)")
        }
        #expect(!installed.output.contains("daemon-reload") && !installed.output.contains("PATH"))
        let unit = try text("etc/systemd/system/nightbelld.service")
        #expect(unit.contains("ExecReload=/opt/nightbell/bin/nightbell reload\n"))
        #expect(!unit.contains("/usr/local"))
        #expect(unit.contains("\nOOMScoreAdjust=") && unit.contains("\nTasksMax="))
        // The administrator's changes stay.
        try Data("logLevel: debug\n".utf8).write(to: home.appendingPathComponent(files[0]))
        #expect(try run("install", [], variables).output.contains("nightbelld.yaml: left as it was"))

        let removed = try run("uninstall", [], variables)
        #expect(removed.code == 0 && removed.output.contains("Kept: /etc/nightbell"), "\(removed)")
        #expect(try paths() == [files[0]])
        #expect(try text(files[0]) == "logLevel: debug\n")
        #expect(try run("uninstall", ["--purge"], variables).code == 0)
        #expect(try paths() == [])
        let again = try run("uninstall", ["--purge"], variables)
        #expect(again.code == 0 && again.output == "No file of scripts/install is there.\n", "\(again)")
    }

    @Test("With the gateway: its program, its unit and its user, which the new configuration names")
    func gateway() throws {
        defer { try? FileManager.default.removeItem(at: home) }
        let variables = ["DESTDIR": home.path, "PREFIX": "/opt/nightbell"]
        let installed = try run("install", ["--gateway"], variables)
        #expect(installed.code == 0, "\(installed)")
        let added = [
            "etc/systemd/system/nightbell-gateway.service", "opt/nightbell/bin/nightbell-gateway",
            "usr/lib/sysusers.d/nightbell-gateway.conf",
        ]
        #expect(Set(added).isSubset(of: try paths()))
        #expect(try text("etc/nightbell/nightbelld.yaml").contains("\n    user: nightbell-gateway\n"))
        #expect(
            try text(added[0]).contains(
                "\nExecStart=/opt/nightbell/bin/nightbell-gateway --push /var/lib/nightbell-gateway\n"))
        #expect(!installed.output.contains("gateway.user must be"))
        try Data("logLevel: debug\n".utf8)
            .write(to: home.appendingPathComponent("etc/nightbell/nightbelld.yaml"))
        #expect(try run("install", ["--gateway"], variables).output.contains("gateway.user must be"))
        // As the unit's `StateDirectory` makes it.
        let store = "var/lib/nightbell-gateway/pushes"
        let directory = home.appendingPathComponent(store).deletingLastPathComponent()
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        try Data("addresses".utf8).write(to: home.appendingPathComponent(store))
        let removed = try run("uninstall", [], variables)
        #expect(
            removed.code == 0 && removed.output.contains("Kept: /var/lib/nightbell-gateway"), "\(removed)")
        #expect(try paths() == ["etc/nightbell/nightbelld.yaml", store])
        let purged = try run("uninstall", ["--purge"], variables)
        #expect(purged.code == 0 && !purged.output.contains("Kept:"), "\(purged)")
        #expect(try paths() == [])
        #expect(try run("install", ["--user", "--gateway"], [:]).code == 64)
    }

    @Test(
        "For a user, on a machine without systemd and with a PATH without its directory",
        .enabled(if: access("/run/systemd/system", F_OK) != 0, "systemd runs here"), arguments: [false, true])
    func user(isInPath: Bool) throws {
        defer { try? FileManager.default.removeItem(at: home) }
        let binaries = home.path + "/.local/bin"
        let variables = isInPath ? ["PATH": "/usr/bin:/bin:\(binaries)"] : [:]
        let installed = try run("install", ["--user"], variables)
        #expect(installed.code == 0, "\(installed)")
        #expect(
            installed.output.contains(
                "systemd does not run here. Start it with:\n    \(binaries)/nightbelld --user\n"))
        #expect(!installed.output.contains("systemctl"))
        #expect(installed.output.contains("XDG_RUNTIME_DIR is not set here"))
        let session = variables.merging(["XDG_RUNTIME_DIR": home.path]) { $1 }
        #expect(!(try run("install", ["--user"], session).output.contains("XDG_RUNTIME_DIR")))
        #expect(installed.output.contains("\(binaries) is not in PATH") != isInPath)
        #expect(
            try paths() == [
                ".config/nightbell/nightbelld.yaml", ".config/systemd/user/nightbelld.service",
                ".local/bin/nightbell", ".local/bin/nightbell-monitor",
                ".local/bin/nightbell-transfer", ".local/bin/nightbelld",
            ])
        let help = try Program.run(binaries + "/nightbelld", ["--help"])
        #expect(help.code == 0)
        // Stopped clients would stay stopped.
        let refused = try run("uninstall", ["--user"], variables)
        #expect(refused.code == 1 && refused.errors.contains("Nothing is removed"), "\(refused)")
        #expect(try paths().contains(".local/bin/nightbelld"))
        let removed = try run("uninstall", ["--user"], session)
        #expect(removed.code == 0, "\(removed)")
        let left = try paths().filter { !$0.hasPrefix("nightbell/") }  // the runtime directory
        #expect(left == [".config/nightbell/nightbelld.yaml"])
    }

    @Test("They refuse unknown options", arguments: ["install", "uninstall"])
    func options(script: String) throws {
        defer { try? FileManager.default.removeItem(at: home) }
        let outcome = try run(script, ["--no-such-option"], ["DESTDIR": home.path])
        #expect(outcome.code == 64 && outcome.errors.contains("unknown option --no-such-option"))
        let second = try run(script, ["--user", "--bogus"], ["DESTDIR": home.path])
        #expect(try second.code == 64 && paths().isEmpty, "\(second)")
        #expect(try run(script, ["--help"], [:]).output.contains("scripts/\(script)"))
    }
}
