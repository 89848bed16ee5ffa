import CLinux
import Glibc

/// Threads that end when their function returns.
package enum Thread {
    /// Enough for threads that do little but wait for the kernel.
    package static let smallStack = 256 * 1_024

    private final class Body: Sendable {
        let run: @Sendable () -> Void

        init(_ run: @escaping @Sendable () -> Void) {
            self.run = run
        }
    }

    /// - Parameter stackSize: in bytes; nil: as large as the system makes it.
    /// - Returns: 0, or the error number if no thread could be made.
    package static func start(stackSize: Int? = nil, _ run: @escaping @Sendable () -> Void) -> CInt {
        var attributes = pthread_attr_t()
        unsafe pthread_attr_init(&attributes)
        defer { unsafe pthread_attr_destroy(&attributes) }
        unsafe pthread_attr_setdetachstate(&attributes, CInt(PTHREAD_CREATE_DETACHED))
        if let stackSize { unsafe pthread_attr_setstacksize(&attributes, stackSize) }
        let body = unsafe Unmanaged.passRetained(Body(run))
        var thread = pthread_t()
        let code = unsafe pthread_create(
            &thread, &attributes,
            { argument in
                guard let argument = unsafe argument else { return nil }
                unsafe Unmanaged<Body>.fromOpaque(argument).takeRetainedValue().run()
                return nil
            }, body.toOpaque())
        if code != 0 { unsafe body.release() }
        return code
    }

    /// Runs a body on a thread of its own, and waits for its end.
    ///
    /// - Returns: its result; nil: no thread could be made.
    package static func runToEnd(_ body: () -> Int32) -> Int32? {
        struct Call {
            let body: () -> Int32
            var result: Int32?
        }
        return withoutActuallyEscaping(body) { body in
            var call = Call(body: body)
            var thread = pthread_t()
            let code = unsafe withUnsafeMutablePointer(to: &call) { call in
                let code = unsafe pthread_create(
                    &thread, nil,
                    { argument in
                        guard let call = unsafe argument?.assumingMemoryBound(to: Call.self) else {
                            return nil
                        }
                        unsafe call.pointee.result = unsafe call.pointee.body()
                        return nil
                    }, call)
                guard code == 0 else { return code }
                return pthread_join(thread, nil)
            }
            return code == 0 ? call.result : nil
        }
    }
}
