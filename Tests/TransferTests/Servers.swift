import EdgeTestSupport
import Glibc
import LinuxSystem

/// `odd-server.py`, with the faults of real servers.
final class OddServer {
    private let process: Child
    let address: String

    init() throws {
        let script = String(#filePath.prefix { _ in true }.dropLast("Servers.swift".count)) + "odd-server.py"
        process = try Child("/usr/bin/python3", script)
        let port = try require(try process.hear(within: 30_000)).prefix { $0.isNumber }
        address = "http://127.0.0.1:\(port)"
    }

    /// The body of a response to curl.
    func get(_ path: String) throws -> String {
        let child = try Child("/usr/bin/curl", "-s", "-m", "20", address + path)
        var text = ""
        while let piece = try child.hear(), !piece.isEmpty { text += piece }
        return text
    }

    /// The requests for bodies, as JSON objects.
    func requests() throws -> [String] {
        try get("/log").split(separator: "}").map(String.init).filter { request in
            request.contains("\"path\"") && !["/log", "/digest", "/stats"].contains { request.contains($0) }
        }
    }

    /// The SHA-256 of one of its bodies, in hexadecimal.
    func digest(seed: String, size: Int) throws -> String { try get("/digest?seed=\(seed)&size=\(size)") }
}

func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
    bytes.map { byte in (byte < 16 ? "0" : "") + String(byte, radix: 16) }.joined()
}

/// nginx with a directory of files, by HTTP and by HTTPS with HTTP/2. Its log has the bytes of each body.
final class Nginx {
    static let program = "/usr/sbin/nginx"

    private let directory: TemporaryDirectory
    private var process: Child
    private let host: String
    private let namespace: NetworkNamespace?
    let port: UInt16
    let securePort: UInt16

    /// - Parameters:
    ///   - rate: of each response, in nginx's notation, such as `4m`; empty: unlimited.
    ///   - namespace: where its address is; nil: the test's own.
    init(rate: String = "", in namespace: NetworkNamespace? = nil, at host: String = "127.0.0.1") throws {
        (self.host, self.namespace) = (host, namespace)
        directory = try TemporaryDirectory()
        chmod(directory.path, 0o755)
        port = try freePort()
        securePort = try freePort()
        let path = directory.path
        mkdir(path + "/files", 0o755)
        let certificate = try Child(
            "/bin/sh", "-c",
            """
            openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
            -addext subjectAltName=IP:127.0.0.1 -keyout \(path)/key.pem -out \(path)/certificate.pem 2>/dev/null
            """)
        certificate.reap()
        chmod(path + "/certificate.pem", 0o644)
        let text = """
            daemon off;
            master_process off;
            pid \(path)/pid;
            error_log \(path)/error.log;
            events { worker_connections 512; }
            http {
                log_format plain '$status $body_bytes_sent $server_protocol $request_uri';
                access_log \(path)/access.log plain;
                client_body_temp_path \(path)/t1;
                proxy_temp_path \(path)/t2;
                fastcgi_temp_path \(path)/t3;
                uwsgi_temp_path \(path)/t4;
                scgi_temp_path \(path)/t5;
                default_type application/octet-stream;
                server {
                    listen \(host):\(port) sndbuf=128k;
                    listen \(host):\(securePort) ssl http2 sndbuf=128k;
                    ssl_certificate \(path)/certificate.pem;
                    ssl_certificate_key \(path)/key.pem;
                    root \(path)/files;
                    location = /moved { return 302 $arg_to; }
                    \(rate.isEmpty ? "" : "limit_rate \(rate);")
                }
            }
            """
        try Self.write(Array(text.utf8), to: path + "/nginx.conf")
        process = try Self.start(path, in: namespace)
        try waitUntilReady()
    }

    private static func start(_ path: String, in namespace: NetworkNamespace?) throws -> Child {
        let words =
            (namespace?.entering ?? [])
            + [program, "-c", path + "/nginx.conf", "-p", path, "-e", path + "/error.log"]
        return try Child(words[0], Array(words.dropFirst()))
    }

    private func waitUntilReady() throws {
        let port = port
        let isReady = try eventually(within: 20_000) {
            guard let namespace else { return Self.connects(to: port) }
            // Without a request, which would be in its log.
            let words = namespace.entering + ["/usr/bin/ss", "-Hltn", "sport", "= :\(port)"]
            return try Child(words[0], Array(words.dropFirst())).hear()?.isEmpty == false
        }
        guard isReady else { throw TimedOut() }
    }

    /// Kills it, and starts it again: all connections are cut.
    func restart() throws {
        process.end()
        process = try Self.start(directory.path, in: namespace)
        try waitUntilReady()
    }

    var authorities: String { directory.path + "/certificate.pem" }
    var address: String { "http://\(host):\(port)" }
    var secureAddress: String { "https://\(host):\(securePort)" }

    func add(_ name: String, _ bytes: [UInt8]) throws {
        try Self.write(bytes, to: directory.path + "/files/" + name)
    }

    /// Status, bytes of the body, protocol and address of each response.
    var log: [(status: Int, bytes: Int, version: String, address: String)] {
        let text = (try? SmallFile.readText(directory.path + "/access.log")) ?? ""
        return text.split(separator: "\n").compactMap { line in
            let fields = line.split(separator: " ")
            guard fields.count == 4, let status = Int(fields[0]), let bytes = Int(fields[1]) else {
                return nil
            }
            return (status, bytes, String(fields[2]), String(fields[3]))
        }
    }

    static func write(_ bytes: [UInt8], to path: String) throws {
        let file = try OwnedDescriptor(opening: path, O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
        var offset = 0
        while offset < bytes.count {
            let count = bytes.withUnsafeBytes {
                Glibc.write(file.rawValue, $0.baseAddress?.advanced(by: offset), $0.count - offset)
            }
            guard count > 0 else { throw SystemError("write") }
            offset += count
        }
    }

    static func connects(to port: UInt16) -> Bool {
        let descriptor = Glibc.socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        guard descriptor >= 0 else { return false }
        defer { close(descriptor) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        address.sin_port = port.bigEndian
        return withUnsafeMutableBytes(of: &address) { bytes in
            guard let pointer = bytes.assumingMemoryBound(to: sockaddr.self).baseAddress else { return false }
            return connect(descriptor, pointer, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
        }
    }
}

/// An event has not come in time.
struct TimedOut: Error {}
