import CLinux
import EdgeTestSupport
import Glibc
import LinuxSystem
import Testing

@Suite struct SharedPageTests {
    @Test func aReaderSeesWhatIsWritten() throws {
        let page = try SharedPage(name: "test")
        let word = try SharedWord(mapping: try page.descriptor.duplicate(), at: 511)
        #expect(word.value == 0)
        unsafe page.word(at: 511).store(.max)
        #expect(word.value == .max)
        unsafe page.word(at: 510).store(7)
        #expect(word.value == .max)
    }

    @Test func readersCannotWriteOrResizeIt() throws {
        let page = try SharedPage(name: "test")
        let rawValue = page.descriptor.rawValue
        let byteCount = SharedPage.byteCount
        #expect(mmap(nil, byteCount, PROT_READ | PROT_WRITE, CInt(MAP_SHARED), rawValue, 0) == MAP_FAILED)
        #expect(errno == EPERM)
        #expect(write(rawValue, "x", 1) == -1)
        #expect(errno == EPERM)
        #expect(ftruncate(rawValue, 0) == -1)
        #expect(errno == EPERM)
        #expect(ftruncate(rawValue, 2 * byteCount) == -1)
        #expect(errno == EPERM)
        // Opened anew it is the same.
        let again = open("/proc/self/fd/\(rawValue)", O_RDWR)
        #expect(again == -1 || mmap(nil, byteCount, PROT_WRITE, CInt(MAP_SHARED), again, 0) == MAP_FAILED)
        if again >= 0 { close(again) }
    }

    @Test(arguments: [-1, 512, Int.max]) func aWordThatIsNotThereIsRefused(index: Int) throws {
        let page = try SharedPage(name: "test")
        #expect(throws: SystemError.self) {
            _ = try SharedWord(mapping: try page.descriptor.duplicate(), at: index)
        }
    }

    /// Memory with a size that can still change could end its reader.
    @Test func anythingButASealedPageIsRefused() throws {
        let directory = try TemporaryDirectory()
        let file = try OwnedDescriptor(opening: directory.file("file"), O_RDWR | O_CREAT, mode: 0o600)
        #expect(ftruncate(file.rawValue, SharedPage.byteCount) == 0)
        #expect(throws: SystemError.self) { _ = try SharedWord(mapping: try file.duplicate(), at: 0) }
        let memory = OwnedDescriptor(adopting: clinux_sealable_memory("test"))
        #expect(ftruncate(memory.rawValue, SharedPage.byteCount) == 0)
        #expect(throws: SystemError.self) { _ = try SharedWord(mapping: try memory.duplicate(), at: 0) }
    }
}
