import Foundation
import Testing

/// Replays the seeds and the findings of the wire decoders' fuzzer.
@Suite("Seeds and findings of the packet fuzzer")
struct PacketSeedTests {
    static var files: [URL] {
        let root = URL(fileURLWithPath: #filePath)
            .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()
        return ["Seeds", "Found"].flatMap { kind -> [URL] in
            let directory = root.appendingPathComponent("Fuzz/\(kind)/wire")
            return
                (try? FileManager.default.contentsOfDirectory(at: directory, includingPropertiesForKeys: nil))
                ?? []
        }
    }

    @Test("There are seeds")
    func exist() {
        #expect(Self.files.count >= 7)
    }

    @Test("Decoders agree, and a decoded packet survives encoding", arguments: files)
    func plays(file: URL) throws {
        try FuzzedPacket([UInt8](Data(contentsOf: file)))?.play()
    }
}
