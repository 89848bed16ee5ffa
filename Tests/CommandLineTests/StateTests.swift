import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

@Suite(
    "The owners of identifiers, on a disk that fails", .serialized,
    .enabled(if: geteuid() == 0, "needs root"))
struct StateTests {
    private func start(_ disk: SmallDisk) throws -> Fixture {
        let stage = try Fixture(["--set", "stateDirectory=\(disk.path)/state"])
        chmod(stage.directory.path, 0o755)
        return stage
    }

    private func stop(_ stage: Fixture) throws {
        stage.daemon.send(signal: SIGTERM)
        #expect(try stage.daemon.outcome().code == 0)
    }

    private func scripted(_ identifier: String, _ stage: Fixture, as uid: Int? = nil) throws -> Program {
        let drop = uid.map { ["--reuid", "\($0)", "--regid", "\($0)", "--clear-groups", "--"] }
        let scripted = try Program(
            "/usr/bin/setpriv", (drop ?? ["--"]) + [Program.product("scripted-client")])
        try scripted.say("hello \(identifier) voip socket=\(stage.socket)")
        return scripted
    }

    /// Too many for the page that the file has already.
    private func fillTable(_ stage: Fixture) throws -> [Program] {
        try (0..<3).map { number in
            let scripted = try scripted("org.example.\(String(repeating: "x", count: 100)).\(number)", stage)
            try scripted.wrote("ok suspension")
            return scripted
        }
    }

    @Test(
        "A failure is reported while it lasts, and the state is written when there is room, at the latest at the end",
        arguments: [false, true])
    func full(asksForNothing: Bool) throws {
        let disk = try SmallDisk()
        do {
            let stage = try start(disk)
            try disk.fill()
            let mine = try scripted("org.example.mine", stage)
            try mine.wrote("ok suspension")
            let others = try fillTable(stage)
            let isTold = try eventually(within: 30_000) {
                try stage.nightbell("status").output.contains("warning")
            }
            #expect(isTold)
            #expect(try stage.nightbell("status", "--json").output.contains("cannot be written"))
            #expect(try stage.nightbell("doctor").output.contains("cannot be written"))
            #expect(stage.daemon.errors.contains("No space left on device"))
            try disk.free()
            if asksForNothing {
                let isWritten = try eventually(within: 30_000) {
                    try !stage.nightbell("status").output.contains("warning")
                }
                #expect(isWritten)
                #expect(stage.daemon.errors.contains("are written down again"))
            }
            try stop(stage)
            withExtendedLifetime((mine, others)) {}
        }
        let next = try start(disk)
        let thief = try scripted("org.example.mine", next, as: 4_711)
        try thief.wrote("error identifierOfOtherUser")
    }

    @Test(
        "A state directory that is removed while a supervisor serves loses no owner",
        arguments: [false, true])
    func removed(anotherFollows: Bool) throws {
        let place = try TemporaryDirectory()
        func start() throws -> Fixture {
            let stage = try Fixture(["--set", "stateDirectory=\(place.path)/state"])
            chmod(stage.directory.path, 0o755)
            return stage
        }
        do {
            let stage = try start()
            let mine = try scripted("org.example.mine", stage)
            try mine.wrote("ok suspension")
            #expect(eventually { access(place.path + "/state/identifiers", F_OK) == 0 })
            try FileManager.default.removeItem(atPath: place.path + "/state")
            if anotherFollows {
                let other = try scripted("org.example.other", stage)
                try other.wrote("ok suspension")
                #expect(eventually { stage.daemon.errors.contains("state/identifiers has been removed") })
                // The one after it brings the entries back.
                let last = try scripted("org.example.last", stage)
                try last.wrote("ok suspension")
                let isComplete = eventually {
                    let table = try? String(
                        contentsOfFile: place.path + "/state/identifiers", encoding: .utf8)
                    return ["mine", "other", "last"].allSatisfy { table?.contains($0) == true }
                }
                #expect(isComplete)
                withExtendedLifetime((other, last)) {}
            }
            try stop(stage)
            withExtendedLifetime(mine) {}
        }
        let next = try start()
        let thief = try scripted("org.example.mine", next, as: 4_711)
        try thief.wrote("error identifierOfOtherUser")
    }

    @Test("A stop without a written state is reported, and so is a start without a valid table")
    func loud() throws {
        let disk = try SmallDisk()
        do {
            let stage = try start(disk)
            try disk.fill()
            let mine = try scripted("org.example.mine", stage)
            try mine.wrote("ok suspension")
            let others = try fillTable(stage)
            try stop(stage)
            #expect(stage.daemon.errors.contains("critical"), "\(stage.daemon.errors)")
            withExtendedLifetime((mine, others)) {}
        }
        try disk.free()
        for name in ["identifiers", "identifiers.previous"] {
            try Data("nonsense".utf8).write(to: URL(fileURLWithPath: "\(disk.path)/state/\(name)"))
        }
        let next = try start(disk)
        #expect(next.daemon.errors.contains("critical the owners of identifiers are not known for certain"))
        #expect(try next.nightbell("status").output.contains("warning"))
        #expect(try next.nightbell("doctor", "--json").output.contains("\"state\""))
    }
}
