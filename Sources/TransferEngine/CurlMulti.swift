import CCurl
import EventHandlers
import EventLoop
import Glibc
import LinuxSystem

/// libcurl's transfers, driven by the handlers of a loop: libcurl names the descriptors to watch and the
/// instant to be called at, and never waits itself.
@safe
final class CurlMulti {
    private let handle: UnsafeMutableRawPointer
    private let loop: HandlerLoop
    private var timer: LoopTimer?
    private var sockets: [CInt: SocketWatches] = [:]
    /// By the address of libcurl's handle.
    private var transfers: [UInt: CurlTransfer] = [:]
    /// A watch that could not be made.
    private(set) var failure: LoopError?

    /// - Parameter connections: how many may stay open, for transfers to come.
    init(_ loop: HandlerLoop, connections: Int) throws(TransferError) {
        // Once a process is enough, and more do no harm.
        guard curl_global_init(Int(CURL_GLOBAL_DEFAULT)) == CURLE_OK, let handle = unsafe curl_multi_init()
        else { throw .curl("it cannot be initialized") }
        unsafe self.handle = unsafe handle
        self.loop = loop
        timer = LoopTimer(loop) { [unowned self] in act(CURL_SOCKET_TIMEOUT, 0) }
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        unsafe ccurl_multi_set_functions(handle, curlWatchesSocket, curlSetsTimer, context)
        unsafe ccurl_multi_set_long(handle, CURLMOPT_MAXCONNECTS, connections)
    }

    deinit {
        // libcurl would call them from here on, and this is no object any more.
        unsafe ccurl_multi_set_functions(handle, nil, nil, nil)
        for transfer in transfers.values { unsafe curl_multi_remove_handle(handle, transfer.handle) }
        transfers.removeAll()
        unsafe curl_multi_cleanup(handle)
    }

    /// Starts a transfer. Its `onEnd` is called once, unless it is stopped.
    func start(_ transfer: CurlTransfer) {
        transfers[transfer.number] = transfer
        unsafe curl_multi_add_handle(handle, transfer.handle)
    }

    /// Ends a transfer without a call. Not for use within libcurl's callbacks.
    func stop(_ transfer: CurlTransfer) {
        guard transfers.removeValue(forKey: transfer.number) != nil else { return }
        unsafe curl_multi_remove_handle(handle, transfer.handle)
    }

    private func act(_ socket: CInt, _ what: CInt) {
        var running: CInt = 0
        unsafe curl_multi_socket_action(handle, socket, what, &running)
        var code = CURLE_OK
        while let ended = unsafe ccurl_multi_next_ended(handle, &code) {
            unsafe curl_multi_remove_handle(handle, ended)
            guard let transfer = transfers.removeValue(forKey: UInt(bitPattern: ended)) else {
                continue
            }
            transfer.onEnd(code)
        }
    }

    // MARK: libcurl's wishes

    private struct SocketWatches {
        var read: DescriptorWatch?
        var write: DescriptorWatch?
    }

    fileprivate func watch(_ socket: CInt, _ what: CInt) {
        guard what != CURL_POLL_REMOVE else {
            sockets[socket] = nil
            return
        }
        do throws(LoopError) {
            var watches = sockets[socket] ?? SocketWatches()
            let reads = what == CURL_POLL_IN || what == CURL_POLL_INOUT
            let writes = what == CURL_POLL_OUT || what == CURL_POLL_INOUT
            if reads, watches.read == nil {
                watches.read = try DescriptorWatch(loop, socket, .read) { [unowned self] _ in
                    act(socket, CURL_CSELECT_IN)
                }
            }
            if writes, watches.write == nil {
                watches.write = try DescriptorWatch(loop, socket, .write) { [unowned self] _ in
                    act(socket, CURL_CSELECT_OUT)
                }
            }
            try watches.read?.setArmed(reads)
            try watches.write?.setArmed(writes)
            sockets[socket] = watches
        } catch {
            failure = error
            loop.stop()
        }
    }

    fileprivate func setTimer(milliseconds: Int) {
        if milliseconds < 0 {
            timer?.deadline = nil
        } else {
            timer?.set(milliseconds: Int64(milliseconds))
        }
    }

    @unsafe fileprivate static func from(_ context: UnsafeMutableRawPointer?) -> CurlMulti? {
        unsafe context.map { unsafe Unmanaged<CurlMulti>.fromOpaque($0).takeUnretainedValue() }
    }

    /// With the libraries below it, for people.
    static var version: String { unsafe String(cString: curl_version()) }
}

private func curlWatchesSocket(
    easy: UnsafeMutableRawPointer?, socket: curl_socket_t, what: CInt, context: UnsafeMutableRawPointer?,
    socketContext: UnsafeMutableRawPointer?
) -> CInt {
    unsafe CurlMulti.from(context)?.watch(socket, what)
    return 0
}

private func curlSetsTimer(
    multi: UnsafeMutableRawPointer?, milliseconds: Int, context: UnsafeMutableRawPointer?
) -> CInt {
    unsafe CurlMulti.from(context)?.setTimer(milliseconds: milliseconds)
    return 0
}
