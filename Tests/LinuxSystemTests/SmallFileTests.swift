import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

@Suite struct SmallFileTests {
    @Test("The names in a directory, up to a limit")
    func names() throws {
        let directory = try TemporaryDirectory()
        for name in ["a", "b", "c"] { symlink("nothing", directory.file(name)) }
        #expect(try SmallFile.names(in: directory.path).sorted() == ["a", "b", "c"])
        #expect(try SmallFile.names(in: directory.path, limit: 2).count == 2)
        #expect(throws: SystemError.self) { try SmallFile.names(in: directory.file("none")) }
    }

    @Test("A link to a directory is followed only where that is allowed")
    func links() throws {
        let directory = try TemporaryDirectory()
        symlink("/proc", directory.file("link"))
        #expect(try SmallFile.names(in: directory.file("link")).contains("self"))
        #expect(throws: SystemError.self) {
            try SmallFile.names(in: directory.file("link"), followsLink: false)
        }
        #expect(try SmallFile.names(in: directory.path, followsLink: false) == ["link"])
    }
}
