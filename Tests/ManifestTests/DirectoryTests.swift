import EdgeTestSupport
import Glibc
import Launching
import Manifests
import NightbellCore
import Testing

@Suite("Files of manifests")
struct DirectoryTests {
    private func write(_ text: String, to path: String, mode: mode_t = 0o644) throws {
        let file = try #require(fopen(path, "w"))
        fputs(text, file)
        fclose(file)
        chmod(path, mode)
    }

    @Test("A directory's files are read in the order of their names; others are ignored")
    func order() throws {
        let directory = try TemporaryDirectory()
        for (name, identifier) in [("b.yaml", "b"), ("a.yaml", "a"), (".c.yaml", "c"), ("d.yml", "d")] {
            try write("identifier: \(identifier)\ncommand: [/p]\n", to: directory.file(name))
        }
        try write("identifier: a\ncommand: [/p]\n", to: directory.file("c.yaml"))
        let read = ManifestDirectory(path: directory.path, accounts: TestAccounts(), owner: geteuid())
        #expect(read.manifests.map(\.identifier.description) == ["a", "b"])
        #expect(read.problems.map(\.file) == [directory.file("c.yaml")])
        #expect(read.problems.first?.problem.contains("a.yaml:1 already") == true)
    }

    @Test("A missing directory is no mistake; a file in its place is one")
    func absent() throws {
        let directory = try TemporaryDirectory()
        let none = ManifestDirectory(path: directory.file("none"), accounts: TestAccounts(), owner: 0)
        #expect(none.manifests.isEmpty && none.problems.isEmpty)
        try write("x", to: directory.file("file"))
        let file = ManifestDirectory(path: directory.file("file"), accounts: TestAccounts(), owner: 0)
        #expect(file.problems.count == 1)
    }

    @Test("A file that other users can write is not used, nor one that is no regular file")
    func ownership() throws {
        let directory = try TemporaryDirectory()
        let path = directory.file("a.yaml")
        let text = "identifier: a\ncommand: [/p]\n"
        func problem(owner: uid_t?) -> String? {
            let read = ManifestFile(path: path, accounts: TestAccounts(), owner: owner)
            #expect(read.manifests.isEmpty == !read.problems.isEmpty)
            return read.problems.first?.description
        }
        try write(text, to: path)
        #expect(problem(owner: geteuid()) == nil)
        for mode in [0o664, 0o646] as [mode_t] {
            chmod(path, mode)
            #expect(problem(owner: geteuid())?.contains("can be written to by others") == true)
            #expect(problem(owner: nil) == nil)
        }
        if geteuid() == 0 {
            chmod(path, 0o644)
            chown(path, 1_001, 1_001)
            #expect(problem(owner: 0)?.contains("belongs to uid 1001") == true)
            #expect(problem(owner: 1_001) == nil)
        }
        unlink(path)
        #expect(problem(owner: 0) == "\(path): cannot be read: No such file or directory")
        mkfifo(path, 0o644)
        #expect(problem(owner: 0) == "\(path): is not a file")
        unlink(path)
        try write(String(repeating: "#", count: ManifestFile.sizeLimit + 1), to: path)
        #expect(problem(owner: geteuid())?.contains("is longer than") == true)
    }

    @Test("A directory that other users can write to is not used")
    func directoryOwnership() throws {
        let directory = try TemporaryDirectory()
        try write("identifier: a\ncommand: [/p]\n", to: directory.file("a.yaml"))
        func read() -> ManifestDirectory {
            ManifestDirectory(path: directory.path, accounts: TestAccounts(), owner: geteuid())
        }
        #expect(read().manifests.count == 1)
        for mode in [0o775, 0o757, 0o1_777] as [mode_t] {
            chmod(directory.path, mode)
            #expect(read().manifests.isEmpty)
            #expect(read().problems.first?.description.contains("can be written to by others") == true)
        }
        chmod(directory.path, 0o755)
        if geteuid() == 0 {
            chown(directory.path, 1_001, 1_001)
            #expect(read().problems.first?.description.contains("belongs to uid 1001") == true)
            chown(directory.path, 0, 0)
        }
        #expect(read().manifests.count == 1)
    }

    @Test("A link counts only if no other user can replace its target")
    func links() throws {
        let directory = try TemporaryDirectory()
        let elsewhere = try TemporaryDirectory()
        try write("identifier: a\ncommand: [/p]\n", to: elsewhere.file("target"))
        symlink(elsewhere.file("target"), directory.file("a.yaml"))
        func problem() -> String? {
            let read = ManifestDirectory(path: directory.path, accounts: TestAccounts(), owner: geteuid())
            #expect(read.manifests.isEmpty == !read.problems.isEmpty)
            return read.problems.first?.description
        }
        #expect(problem() == nil)
        chmod(elsewhere.path, 0o777)
        #expect(problem()?.contains("leads to \(elsewhere.path), which can be written to by others") == true)
        chmod(elsewhere.path, 0o755)
        if geteuid() == 0 {
            lchown(directory.file("a.yaml"), 1_001, 1_001)
            #expect(problem()?.contains("as a link, belongs to uid 1001") == true)
            // A link of another user on the way.
            lchown(directory.file("a.yaml"), 0, 0)
            symlink("target", elsewhere.file("between"))
            unlink(directory.file("a.yaml"))
            symlink(elsewhere.file("between"), directory.file("a.yaml"))
            #expect(problem() == nil)
            lchown(elsewhere.file("between"), 1_001, 1_001)
            #expect(problem()?.contains("as a link, belongs to uid 1001") == true)
        }
    }

    @Test("A byte order mark of UTF-8 is no mistake")
    func byteOrderMark() throws {
        let directory = try TemporaryDirectory()
        try write("\u{FEFF}identifier: a\ncommand: [/p]\n", to: directory.file("a.yaml"))
        let read = ManifestFile(path: directory.file("a.yaml"), accounts: TestAccounts())
        #expect(read.manifests.map(\.identifier.description) == ["a"] && read.problems.isEmpty)
    }

    @Test("The accounts of this machine are found by name and number")
    func accounts() throws {
        let accounts = SystemAccounts()
        let root = try #require(accounts.user("root"))
        #expect(root == accounts.user("0"))
        #expect(root.identity.user == 0 && root.home.hasPrefix("/"))
        #expect(accounts.user("no-such-user") == nil && accounts.user("4294967294") == nil)
        #expect(accounts.group("root") == 0 && accounts.group("4711") == 4_711)
        #expect(accounts.group("no-such-group") == nil)
        // The number that means "unchanged" to the kernel, and text that is no number.
        #expect(accounts.group("4294967295") == nil && accounts.group("+0") == nil)
        #expect(accounts.user("4294967295") == nil && accounts.user("+0") == nil)
    }
}
