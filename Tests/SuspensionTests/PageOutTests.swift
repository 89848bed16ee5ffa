import EdgeTestSupport
import Glibc
import LinuxSystem
import Suspension
import Testing

@Suite("Writing sleepers to swap")
struct PageOutTests {
    @Test("All of a process's memory is advised on, and it runs on afterwards")
    func pagesOut() throws {
        let child = try Child.echo()
        #expect(try child.answers())
        let process = try child.handle()
        var calls = 0
        let advised = PageOut.pageOut(process.rawValue, process.pid) {
            calls += 1
            return true
        }
        switch advised {
        case .success(let bytes): #expect(bytes > 1 << 20 && calls > 0)
        // It needs CAP_SYS_NICE.
        case .failure(let error): #expect(error.code == EPERM)
        }
        #expect(try child.answers())
    }

    @Test("It ends when its process is awake again, and with a process that is gone")
    func ends() throws {
        let child = try Child.echo()
        let process = try child.handle()
        guard case .success(0) = PageOut.pageOut(process.rawValue, process.pid, while: { false }) else {
            Issue.record("it went on")
            return
        }
        child.end()
        guard case .failure = PageOut.pageOut(process.rawValue, process.pid, while: { true }) else {
            Issue.record("it was there")
            return
        }
    }

    @Test("Many processes come and go")
    func comeAndGo() throws {
        let pageOut = PageOut()
        let children = try (0..<8).map { _ in try Child.echo() }
        for (index, child) in children.enumerated() { try pageOut.begin(UInt64(index), try child.handle()) }
        for index in children.indices where index % 2 == 0 { pageOut.cancel(UInt64(index)) }
        for child in children { #expect(try child.answers()) }
    }
}
