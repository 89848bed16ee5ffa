import EdgeTestSupport
import Foundation
import NightbellSupervisor
import Testing

@Suite("Memory that is available")
struct AvailableMemoryTests {
    private func isLow(_ text: String) throws -> Bool {
        let directory = try TemporaryDirectory()
        let path = directory.file("meminfo")
        try text.write(toFile: path, atomically: false, encoding: .utf8)
        return AvailableMemory.isLow(path: path)
    }

    @Test(arguments: [(199, true), (200, false), (900, false)])
    func aFifthIsEnough(_ available: Int, _ isLow: Bool) throws {
        let text = "MemTotal:        1000 kB\nMemFree:           1 kB\nMemAvailable:     \(available) kB\n"
        #expect(try self.isLow(text) == isLow)
    }

    @Test func withoutFiguresItCountsAsLow() throws {
        #expect(try isLow("MemTotal: 1000 kB\n"))
        #expect(try isLow(""))
        #expect(AvailableMemory.isLow(path: "/nonexistent"))
    }
}
