import Foundation
import Testing

/// Replays the seeds of the fuzzer of profiles on the wire, and all its finds.
@Suite("Seeds and finds of the fuzzer of profiles on the wire")
struct FuzzedProfileTests {
    static var files: [URL] {
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
        return ["Seeds", "Found"].flatMap { kind -> [URL] in
            let directory = root.appendingPathComponent("Fuzz/\(kind)/wire")
            return
                (try? FileManager.default.contentsOfDirectory(at: directory, includingPropertiesForKeys: nil))
                ?? []
        }
    }

    private static func input(_ file: URL) throws -> FuzzedProfile? {
        FuzzedProfile([UInt8](try Data(contentsOf: file)))
    }

    @Test("There are seeds")
    func exist() throws {
        #expect(try Self.files.count { try Self.input($0) != nil } >= 12)
    }

    @Test("Each is refused with a reason, or works", arguments: files)
    func plays(file: URL) throws {
        try Self.input(file)?.play()
    }
}
