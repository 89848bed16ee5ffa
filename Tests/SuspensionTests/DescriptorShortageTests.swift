import EdgeTestSupport
import Glibc
import LinuxSystem
import Suspension
import Testing

/// Without a free descriptor `/proc` cannot be read, which does not mean that the process is gone. Each test
/// runs in a process of its own, because the limit is the process's.
@Suite(.enabled(if: canFreeze), .serialized) struct DescriptorShortageTests {
    @Test func attachingIsRefusedForThatReason() async {
        await #expect(processExitsWith: .success) {
            for method in [SuspensionMethod.cgroup, .signal, .auto] {
                let stage = try Fixture()
                let suspender = try stage.suspender(method)
                let child = try Child.awakeEcho()
                let handle = try child.handle()
                let error = #expect(throws: SuspensionError.self) {
                    try withNoDescriptorLeft { try suspender.attach(slot: 0, process: handle) }
                }
                #expect(error?.code == .outOfDescriptors && error?.underlying?.code == EMFILE)
                // The error is caused neither by the process nor by the method.
                try suspender.attach(slot: 0, process: handle)
                #expect(suspender.method(slot: 0) == (method == .auto ? .cgroup : method))
                suspender.detachAll()
            }
        }
    }

    /// It does not count as frozen either.
    @Test func lookingIsRefusedForThatReason() async {
        await #expect(processExitsWith: .success) {
            for method in [SuspensionMethod.cgroup, .signal] {
                let stage = try Fixture()
                let suspender = try stage.suspender(method)
                let child = try Child.threaded(4)
                #expect(eventually { ProcFS.threads(child.pid).map { $0 >= 4 } ?? false })
                try suspender.attach(0, child)
                try suspender.freezeFully(0)
                kill(child.pid, SIGCONT)
                let error = #expect(throws: SuspensionError.self) {
                    try withNoDescriptorLeft { try suspender.progress(slot: 0) }
                }
                #expect(error?.code == .outOfDescriptors)
                suspender.detachAll()
            }
        }
    }
}
