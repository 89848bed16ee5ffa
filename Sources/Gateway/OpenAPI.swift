import Hummingbird
import NIOCore

/// The description of the interface for programs.
enum OpenAPI {
    static var response: Response {
        Response(
            status: .ok, headers: [.contentType: "application/json", .cacheControl: "no-cache"],
            body: .init(byteBuffer: ByteBuffer(bytes: PackageResources.openapi_json)))
    }
}
