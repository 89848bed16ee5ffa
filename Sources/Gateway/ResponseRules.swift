import HTTPTypes
import Hummingbird

/// Rules for every response: errors are JSON, browsers take nothing for what it is not, and strangers that are
/// refused again and again wait.
struct ResponseRules: RouterMiddleware {
    let strangers: StrangerLimits

    func handle(
        _ request: Request, context: Context, next: @concurrent (Request, Context) async throws -> Response
    ) async throws -> Response {
        var response: Response
        do {
            response = try await next(request, context)
        } catch let error as APIError {
            response = await refuse(error)
        } catch let error as HTTPError {
            response = await refuse(APIError(error))
        } catch let error as any HTTPResponseError {
            // Such as that of a body which is too large.
            response = await refuse(APIError(HTTPError(error.status)))
        }
        response.headers[.xContentTypeOptions] = "nosniff"
        response.headers[.contentSecurityPolicy] =
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
            + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        response.headers[.referrerPolicy] = "no-referrer"
        if response.headers[.cacheControl] == nil { response.headers[.cacheControl] = "no-store" }
        return response
    }

    private func refuse(_ error: APIError) async -> Response {
        var response = error.response
        if error.isForStrangers, await !strangers.wait(.refusal) { response.headers[.connection] = "close" }
        return response
    }
}

extension HTTPField.Name {
    fileprivate static let referrerPolicy = HTTPField.Name.known("Referrer-Policy")

    /// A name that is written out in the code.
    static func known(_ name: String) -> HTTPField.Name {
        guard let known = HTTPField.Name(name) else { preconditionFailure("\(name) is no header field") }
        return known
    }
}
