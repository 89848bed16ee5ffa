import HTTPTypes
import Hummingbird
import NIOCore
import Nightbell
import Presentation

/// A refusal, as JSON: `{"error":{"code":"NO_SUCH_CLIENT","message":"…"}}`. Codes of the supervisor are those
/// of the wire schema without their prefix.
struct APIError: HTTPResponseError {
    var status: HTTPResponse.Status
    var code: String
    var message: String
    var headers: HTTPFields = [:]
    /// It is an answer to requests that show neither a valid token or proof nor an address that exists.
    var isForStrangers = false

    func response(from request: Request, context: some RequestContext) -> Response { response }

    var response: Response {
        let body: JSON = ["error": ["code": .string(code), "message": .string(message)]]
        var headers = headers
        headers[.contentType] = "application/json"
        return Response(
            status: status, headers: headers, body: .init(byteBuffer: ByteBuffer(string: body.text + "\n")))
    }

    static let unauthenticated = APIError(
        status: .unauthorized, code: "UNAUTHENTICATED",
        message: "a token is needed: Authorization: Bearer …", headers: [.wwwAuthenticate: "Bearer"],
        isForStrangers: true)

    static func scopeRequired(_ scope: Scope) -> APIError {
        APIError(
            status: .forbidden, code: "SCOPE_REQUIRED",
            message: "this needs a token with the scope \(scope.rawValue)",
            headers: [.wwwAuthenticate: "Bearer error=\"insufficient_scope\", scope=\"\(scope.rawValue)\""])
    }

    static let notFound = APIError(
        status: .notFound, code: "NOT_FOUND", message: "there is nothing here", isForStrangers: true)

    static func methodNotAllowed(_ allowed: [HTTPRequest.Method]) -> APIError {
        let names = allowed.map(\.rawValue).joined(separator: ", ")
        return APIError(
            status: .methodNotAllowed, code: "METHOD_NOT_ALLOWED", message: "permitted: \(names)",
            headers: [.allow: names], isForStrangers: true)
    }

    static func invalid(_ message: String) -> APIError {
        APIError(status: .badRequest, code: "INVALID_ARGUMENT", message: message)
    }

    static let noSuchClient = APIError(
        status: .notFound, code: "NO_SUCH_CLIENT", message: "there is no such client")

    static let tooManyRequests = APIError(
        status: .tooManyRequests, code: "TOO_MANY_REQUESTS", message: "too many requests",
        headers: [.retryAfter: "1"])

    static let overloaded = APIError(
        status: .serviceUnavailable, code: "OVERLOADED", message: "too many requests wait for the supervisor",
        headers: [.retryAfter: "1"])

    static let tooManyStreams = APIError(
        status: .serviceUnavailable, code: "TOO_MANY_STREAMS", message: "too many connections follow events",
        headers: [.retryAfter: "5"])

    static func unavailable(_ message: String) -> APIError {
        APIError(
            status: .serviceUnavailable, code: "SUPERVISOR_UNAVAILABLE", message: message,
            headers: [.retryAfter: "1"])
    }
}

extension APIError {
    /// An answer of the supervisor, or the lack of one.
    init(_ error: NightbellError) {
        switch error.code {
        case .noSuchClient: self = .noSuchClient
        case .invalidIdentifier: self = .noSuchClient
        case .permissionDenied:
            self.init(
                status: .forbidden, code: "PERMISSION_DENIED",
                message: "the supervisor does not permit this to the gateway: see gateway.rights")
        case .illegalState:
            self.init(status: .conflict, code: "ILLEGAL_STATE", message: "\(error)")
        case .cannotLaunch:
            self.init(status: .conflict, code: "CANNOT_LAUNCH", message: "\(error)")
        case .invalidArgument:
            self.init(status: .badRequest, code: "INVALID_ARGUMENT", message: "\(error)")
        default:
            self = .unavailable("\(error)")
        }
    }

    init(_ error: HTTPError) {
        switch error.status {
        case .notFound: self = .notFound
        case .contentTooLarge:
            self.init(status: error.status, code: "BODY_TOO_LARGE", message: "the body is too large")
        case .badRequest: self = .invalid(error.body ?? "the request is malformed")
        default:
            self.init(
                status: error.status, code: "ERROR", message: error.body ?? error.status.reasonPhrase)
        }
    }
}
