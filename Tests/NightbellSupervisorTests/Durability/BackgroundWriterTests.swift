import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import NightbellSupervisor
import Testing

@Suite("Files that are written in the background")
struct BackgroundWriterTests {
    private let directory: TemporaryDirectory
    private let told = Told()
    private var path: String { directory.file("content") }
    /// Nothing can be written while a directory is in the place of the new file.
    private var obstacle: String { path + ".new" }

    init() throws {
        directory = try TemporaryDirectory()
    }

    private final class Told: @unchecked Sendable {
        private let lock = NSLock()
        private var list: [BackgroundWriter.Change] = []
        func record(_ change: BackgroundWriter.Change) { lock.withLock { list.append(change) } }
        var changes: [BackgroundWriter.Change] { lock.withLock { list } }
    }

    private func writer() -> BackgroundWriter {
        BackgroundWriter(DurableFile(path: path)) { [told] in told.record($0) }
    }

    private func content() throws -> [UInt8] {
        Array(try Data(contentsOf: URL(fileURLWithPath: path)))
    }

    @Test func theLastContentIsWritten() throws {
        let writer = writer()
        for number in 0..<100 as Range<UInt8> { writer.write([number]) }
        writer.flush()
        #expect(try content() == [99])
        #expect(told.changes.isEmpty && writer.problem == nil)
    }

    @Test func aFailureIsReportedOnceAndRetriedByItself() throws {
        mkdir(obstacle, 0o700)
        let writer = writer()
        writer.write([1])
        writer.flush()
        writer.flush()
        writer.write([2])
        writer.flush()
        #expect(told.changes.count == 1 && writer.problem != nil)
        rmdir(obstacle)
        #expect(eventually(within: 30_000) { writer.problem == nil })
        #expect(try content() == [2])
        #expect(told.changes.count == 2 && told.changes.last == .written)
    }

    @Test func aFlushTriesAtOnce() throws {
        mkdir(obstacle, 0o700)
        let writer = writer()
        writer.write([1])
        for _ in 0..<8 { writer.flush() }
        rmdir(obstacle)
        // By itself it would be tried again after a minute only.
        writer.flush()
        #expect(try content() == [1])
        #expect(writer.problem == nil)
    }

    @Test func aWriterThatIsReleasedGoesOn() throws {
        mkdir(obstacle, 0o700)
        var writer: BackgroundWriter? = writer()
        writer?.write([1])
        writer?.flush()
        rmdir(obstacle)
        writer = nil
        #expect(eventually(within: 30_000) { (try? content()) == [1] })
    }
}
