import Descriptors
import EdgeTestSupport
import Glibc
import Suspension
import Testing

/// Without a descriptor nobody can look into `/proc`, which says nothing about the process looked for. Each in a
/// process of its own, because the limit is the process's.
@Suite(.enabled(if: canFreeze), .serialized) struct DescriptorShortageTests {
    @Test func attachingIsRefusedForThatReason() async {
        await #expect(processExitsWith: .success) {
            for method in [SuspensionMethod.cgroup, .signal, .auto] {
                let stage = try Stage()
                let suspender = try stage.suspender(method)
                let child = try Child.awakeEcho()
                let handle = try child.handle()
                let error = #expect(throws: SuspensionError.self) {
                    try withNoDescriptorLeft { try suspender.attach(slot: 0, process: handle) }
                }
                #expect(error?.code == .outOfDescriptors && error?.underlying?.code == EMFILE)
                // It was not the process's fault, nor the method's.
                try suspender.attach(slot: 0, process: handle)
                #expect(suspender.method(slot: 0) == (method == .auto ? .cgroup : method))
                suspender.detachAll()
            }
        }
    }

    /// It is not taken for frozen either.
    @Test func lookingIsRefusedForThatReason() async {
        await #expect(processExitsWith: .success) {
            for method in [SuspensionMethod.cgroup, .signal] {
                let stage = try Stage()
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
