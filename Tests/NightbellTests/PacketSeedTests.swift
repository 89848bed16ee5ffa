import Foundation
import Testing

/// Plays what the fuzzer of the wire decoders starts from, and all that it has found.
@Suite("Seeds and finds of the packet fuzzer")
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

    @Test("There are some")
    func exist() {
        #expect(Self.files.count >= 7)
    }

    @Test("Decoders agree, and what is decoded survives encoding", arguments: files)
    func plays(file: URL) throws {
        try FuzzedPacket([UInt8](Data(contentsOf: file)))?.play()
    }
}
