import CCurl
import Glibc
import LinuxSystem
import TransferModel

/// One request of libcurl, with its redirections.
@safe
final class CurlTransfer {
    /// The things that it needs to know.
    struct Order {
        var url: TransferURL
        var method: String
        var fields: [HeaderField]
        var proxy: String?
        /// The first byte of the range to ask for; nil: the whole.
        var rangeStart: Int64?
        /// The file to send, which must outlive the transfer; nil: no body.
        var body: (descriptor: CInt, bytes: Int64)?
        /// A file with certificates of authorities; nil: the system's.
        var authorities: String?
        /// In seconds, without a byte.
        var stallSeconds = 60
        var connectSeconds = 30
        /// libcurl sends a request again by itself, if a connection that was used before ends without an answer.
        var needsNewConnection = false
    }

    enum Verdict {
        case accepted
        /// The transfer ends with an error.
        case refused
    }

    let handle: UnsafeMutableRawPointer
    private var list: UnsafeMutablePointer<curl_slist>?
    private let body: (descriptor: CInt, bytes: Int64)?
    private var sent: Int64 = 0
    /// Of the response that is being read. Redirections and informational responses come before the one that
    /// counts.
    private(set) var head: ResponseHead?
    private var hasBody = false
    /// An address was secure: it is not redirected to one that is not.
    private var staysSecure: Bool
    /// Called with each piece of the body of the response that counts; not with that of a redirection.
    var onData: (UnsafeRawBufferPointer) -> Verdict = { _ in .refused }
    var onEnd: (CURLcode) -> Void = { _ in }

    private static let redirections = 10
    /// Of what is read at a time.
    private static let bufferBytes = 64 << 10

    init(_ order: Order) throws(TransferError) {
        guard let handle = unsafe curl_easy_init() else { throw .curl("no memory") }
        unsafe self.handle = unsafe handle
        body = order.body
        staysSecure = order.url.isSecure
        setCommon(order)
        setRequest(order)
    }

    deinit {
        unsafe curl_easy_cleanup(handle)
        unsafe curl_slist_free_all(list)
    }

    private func setCommon(_ order: Order) {
        set(CURLOPT_NOSIGNAL, 1)
        set(CURLOPT_BUFFERSIZE, Self.bufferBytes)
        set(CURLOPT_URL, order.url.text)
        let protocols = staysSecure ? "https" : "http,https"
        set(CURLOPT_PROTOCOLS_STR, protocols)
        set(CURLOPT_REDIR_PROTOCOLS_STR, protocols)
        set(CURLOPT_FOLLOWLOCATION, 1)
        set(CURLOPT_MAXREDIRS, Self.redirections)
        set(CURLOPT_HTTP_VERSION, Int(CURL_HTTP_VERSION_2TLS))
        set(CURLOPT_CONNECTTIMEOUT, order.connectSeconds)
        set(CURLOPT_LOW_SPEED_LIMIT, 1)
        set(CURLOPT_LOW_SPEED_TIME, order.stallSeconds)
        set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
        if order.needsNewConnection { set(CURLOPT_FRESH_CONNECT, 1) }
        if let proxy = order.proxy { set(CURLOPT_PROXY, proxy) }
        if let authorities = order.authorities { set(CURLOPT_CAINFO, authorities) }
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        unsafe ccurl_set_data_function(handle, CURLOPT_WRITEFUNCTION, curlHasBody)
        unsafe ccurl_set_pointer(handle, CURLOPT_WRITEDATA, context)
        unsafe ccurl_set_data_function(handle, CURLOPT_HEADERFUNCTION, curlHasHeader)
        unsafe ccurl_set_pointer(handle, CURLOPT_HEADERDATA, context)
    }

    private func setRequest(_ order: Order) {
        if let start = order.rangeStart { set(CURLOPT_RANGE, "\(start)-") }
        for field in order.fields {
            // A field without a value needs another form.
            let line = field.value.isEmpty ? "\(field.name);" : "\(field.name): \(field.value)"
            if let longer = unsafe curl_slist_append(list, line) { unsafe list = unsafe longer }
        }
        unsafe ccurl_set_list(handle, CURLOPT_HTTPHEADER, list)
        guard let body = order.body else { return }
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()
        unsafe ccurl_set_data_function(handle, CURLOPT_READFUNCTION, curlWantsBody)
        unsafe ccurl_set_pointer(handle, CURLOPT_READDATA, context)
        unsafe ccurl_set_seek_function(handle, curlSeeksBody)
        unsafe ccurl_set_pointer(handle, CURLOPT_SEEKDATA, context)
        if order.method == "POST" {
            set(CURLOPT_POST, 1)
            unsafe ccurl_set_offset(handle, CURLOPT_POSTFIELDSIZE_LARGE, body.bytes)
        } else {
            set(CURLOPT_UPLOAD, 1)
            unsafe ccurl_set_offset(handle, CURLOPT_INFILESIZE_LARGE, body.bytes)
            if order.method != "PUT" { set(CURLOPT_CUSTOMREQUEST, order.method) }
        }
    }

    private func set(_ option: CURLoption, _ value: Int) { unsafe ccurl_set_long(handle, option, value) }

    /// libcurl copies the text.
    private func set(_ option: CURLoption, _ value: String) { unsafe ccurl_set_text(handle, option, value) }

    // MARK: Facts

    /// The address of libcurl's handle.
    var number: UInt { unsafe UInt(bitPattern: handle) }

    /// Bytes of the body that were sent.
    var sentBytes: Int64 { unsafe ccurl_get_offset(handle, CURLINFO_SIZE_UPLOAD_T) }

    /// Whether the server may have received the request.
    var mayHaveArrived: Bool { unsafe ccurl_get_offset(handle, CURLINFO_PRETRANSFER_TIME_T) > 0 }

    /// The response of the proxy that was asked for a tunnel to the server; nil: none was.
    var tunnelResponse: ResponseHead? {
        let status = unsafe ccurl_get_long(handle, CURLINFO_HTTP_CONNECTCODE)
        return status > 0 ? ResponseHead(status: status) : nil
    }

    /// The meaning of the error with which it has ended.
    func failure(_ code: CURLcode) -> CurlFailure {
        // libcurl has no error of its own for a response that is not of HTTP.
        if code == CURLE_UNSUPPORTED_PROTOCOL, isPermitted(address) { return .passing }
        return CurlFailure(code)
    }

    /// The address of the request, or to which it was redirected last; in lower case.
    private var address: String {
        unsafe ccurl_get_text(handle, CURLINFO_EFFECTIVE_URL).map { unsafe String(cString: $0).lowercased() }
            ?? ""
    }

    private func isPermitted(_ address: String) -> Bool {
        address.hasPrefix("https:") || !staysSecure && address.hasPrefix("http:")
    }

    // MARK: Callbacks

    fileprivate func receiveHeader(_ bytes: UnsafeRawBufferPointer) {
        let text = unsafe String(decoding: bytes, as: UTF8.self)
        let line = text.prefix { !$0.isNewline }
        if let next = ResponseHead(statusLine: line) {
            head = next
            hasBody = false
            if (300..<400).contains(next.status) { prepareRedirection(next.status) }
        } else if !hasBody {
            // After the body it is a trailer.
            head?.add(line: line)
        }
    }

    /// Called before libcurl follows the redirection.
    private func prepareRedirection(_ status: Int) {
        if !staysSecure, address.hasPrefix("https:") {
            staysSecure = true
            set(CURLOPT_REDIR_PROTOCOLS_STR, "https")
        }
        // GET follows, whatever the method was (RFC 9110 section 15.4.4). libcurl would keep PATCH.
        if status == 303 { unsafe ccurl_set_text(handle, CURLOPT_CUSTOMREQUEST, nil) }
    }

    fileprivate func receiveBody(_ bytes: UnsafeRawBufferPointer) -> Verdict {
        hasBody = true
        return unsafe onData(bytes)
    }

    fileprivate func sendBody(into buffer: UnsafeMutableRawBufferPointer) -> Int {
        guard let body else { return 0 }
        let count = min(buffer.count, Int(body.bytes - sent))
        let result = unsafe pread(body.descriptor, buffer.baseAddress, count, Int(sent))
        guard result >= 0, result > 0 || count == 0 else { return Int(CURL_READFUNC_ABORT) }
        sent += Int64(result)
        return result
    }

    fileprivate func seekBody(to offset: Int64) -> Bool {
        guard let body, (0...body.bytes).contains(offset) else { return false }
        sent = offset
        return true
    }

    @unsafe fileprivate static func from(_ context: UnsafeMutableRawPointer?) -> CurlTransfer? {
        unsafe context.map { unsafe Unmanaged<CurlTransfer>.fromOpaque($0).takeUnretainedValue() }
    }
}

private func curlHasHeader(
    bytes: UnsafeMutablePointer<CChar>?, size: Int, count: Int, context: UnsafeMutableRawPointer?
) -> Int {
    unsafe CurlTransfer.from(context)?.receiveHeader(
        unsafe UnsafeRawBufferPointer(start: bytes, count: size * count))
    return size * count
}

private func curlHasBody(
    bytes: UnsafeMutablePointer<CChar>?, size: Int, count: Int, context: UnsafeMutableRawPointer?
) -> Int {
    let verdict = unsafe CurlTransfer.from(context)?.receiveBody(
        unsafe UnsafeRawBufferPointer(start: bytes, count: size * count))
    switch verdict {
    case .accepted: return size * count
    case .refused, nil: return Int(bitPattern: UInt(CURL_WRITEFUNC_ERROR))
    }
}

private func curlWantsBody(
    bytes: UnsafeMutablePointer<CChar>?, size: Int, count: Int, context: UnsafeMutableRawPointer?
) -> Int {
    unsafe CurlTransfer.from(context)?.sendBody(
        into: unsafe UnsafeMutableRawBufferPointer(start: bytes, count: size * count))
        ?? Int(CURL_READFUNC_ABORT)
}

private func curlSeeksBody(context: UnsafeMutableRawPointer?, offset: curl_off_t, origin: CInt) -> CInt {
    guard origin == SEEK_SET, unsafe CurlTransfer.from(context)?.seekBody(to: Int64(offset)) == true else {
        return CURL_SEEKFUNC_CANTSEEK
    }
    return CURL_SEEKFUNC_OK
}

/// The meaning of libcurl's errors.
enum CurlFailure {
    /// Another attempt may succeed.
    case passing
    /// No attempt would.
    case lasting(String)

    init(_ code: CURLcode) {
        switch code {
        case CURLE_UNSUPPORTED_PROTOCOL, CURLE_URL_MALFORMAT, CURLE_TOO_MANY_REDIRECTS,
            CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM, CURLE_SSL_CIPHER, CURLE_SSL_CACERT_BADFILE,
            CURLE_SSL_ISSUER_ERROR, CURLE_SSL_PINNEDPUBKEYNOTMATCH, CURLE_SSL_INVALIDCERTSTATUS,
            CURLE_NOT_BUILT_IN, CURLE_UNKNOWN_OPTION, CURLE_BAD_FUNCTION_ARGUMENT, CURLE_FILESIZE_EXCEEDED:
            self = .lasting(unsafe String(cString: curl_easy_strerror(code)))
        default:
            self = .passing
        }
    }
}
