import HTTPTypes
import Hummingbird
import NIOCore

/// A file of the dashboard.
struct Asset: Sendable {
    let path: RouterPath
    let type: String
    let bytes: [UInt8]

    static let all: [Asset] = [
        Asset(path: "/", type: "text/html; charset=utf-8", bytes: PackageResources.index_html),
        Asset(
            path: "/dashboard.js", type: "text/javascript; charset=utf-8",
            bytes: PackageResources.dashboard_js),
        Asset(path: "/dashboard.css", type: "text/css; charset=utf-8", bytes: PackageResources.dashboard_css),
    ]

    var response: Response {
        Response(
            status: .ok, headers: [.contentType: type, .cacheControl: "no-cache"],
            body: .init(byteBuffer: ByteBuffer(bytes: bytes)))
    }
}
