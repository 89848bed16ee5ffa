import Foundation
import NightbellProfiles
import Testing

/// Replays the seeds and the findings of the fuzzers.
@Suite("Seeds and findings of the fuzzers")
struct SeedTests {
    private static let root = URL(fileURLWithPath: #filePath)
        .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()

    static func files(_ name: ProfileName) -> [URL] {
        ["Seeds", "Found"].flatMap { kind -> [URL] in
            let directory = root.appendingPathComponent("Fuzz/\(kind)/\(name.rawValue)")
            return
                (try? FileManager.default.contentsOfDirectory(at: directory, includingPropertiesForKeys: nil))
                ?? []
        }
    }

    @Test("Every invariant holds", arguments: ProfileName.allCases)
    func plays(name: ProfileName) throws {
        let files = Self.files(name)
        #expect(!files.isEmpty, "no seeds for \(name)")
        for file in files {
            do {
                try FuzzedInput([UInt8](Data(contentsOf: file)), for: name)?.play()
            } catch {
                Issue.record("\(file.lastPathComponent): \(error)")
            }
        }
    }

    @Test(
        "A million bytes that do not end cost no more than the longest noise", arguments: ProfileName.allCases
    )
    func long(name: ProfileName) throws {
        let starts = [
            "OPTIONS sip:a SIP/2.0\r\nX: ", "OPTIONS ", "<iq a='", "<iq", "PING :", "* OK ", "\u{1}\u{1}",
            "\0", "",
        ]
        for start in starts {
            let bytes = Array(start.utf8) + [UInt8](repeating: 120, count: 1_000_000)
            var profile = try #require(try Self.profile(name))
            var replies: [UInt8] = []
            for part in [bytes, Array(bytes.prefix(profile.longestNoise + 1))] {
                profile.begin()
                let verdict = profile.inspect(part.span, ProfileContext(random: 0), replies: &replies)
                // No more input is waited for at this length.
                switch verdict {
                case .noise(let length, _): #expect(length <= profile.longestNoise)
                case .significant: break
                case .needMore: #expect(Bool(false), "\(start)")
                }
            }
            #expect(replies.count < 10_000)
            try FuzzedInput(Array("00?".utf8) + bytes.prefix(1_000), for: name)?.play()
        }
    }

    private static func profile(_ name: ProfileName) throws -> Profile? {
        let settings: ProfileSettings? =
            switch name {
            case .line: .pattern(try .lines([.init([120])], end: .newline))
            case .bytes: .pattern(try .bytes([.init([UInt8](repeating: 120, count: 4_096))]))
            case .sip, .stun, .xmpp, .webSocket, .mqtt, .irc, .imap, .tcp: try .standard(name, tagKey: tagKey)
            }
        return try settings.map { try Profile($0, over: .stream) }
    }
}
