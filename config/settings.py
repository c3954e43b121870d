"""Settings. This module is the only reader of the environment."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import plotly
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from django.core.management.utils import get_random_secret_key
from environs import Env

BASE_DIR = Path(__file__).resolve().parent.parent
env = Env()
env.read_env(str(BASE_DIR / ".env"), recurse=False)

TESTING = "pytest" in sys.modules

# Everything that is made while running lies here: embedded database, broker folders, evidence, checkpoints, logs.
VAR = Path(env.str("DRAFTPROOF_VAR", str(BASE_DIR / "var"))).resolve()
# Prompts lie here: it is this installation's alone.
VAR.mkdir(mode=0o700, parents=True, exist_ok=True)
EVIDENCE_DIR = VAR / "evidence"
# s3://bucket/prefix where evidence is kept in a bucket. boto3 itself finds the keys.
EVIDENCE_URL = env.str("DRAFTPROOF_EVIDENCE", "")
EVIDENCE_ENDPOINT = env.str("AWS_ENDPOINT_URL_S3", "") or env.str("AWS_ENDPOINT_URL", "")
EVIDENCE_REGION = env.str("AWS_REGION", "")
# What needs a file on this machine reads a copy.
EVIDENCE_COPIES_DIR = VAR / "evidence-copies"
MODELS_DIR = VAR / "models"
RUNS_DIR = VAR / "runs"
UPLOADS_DIR = VAR / "uploads"
ENGINE_PYTHON = Path(env.str("DRAFTPROOF_ENGINE_PYTHON", str(BASE_DIR / ".venv-engine/bin/python")))
# Engines that others start: the table that says where, and the hosts that it may name.
REMOTE_ENGINES = env.path("DRAFTPROOF_REMOTE_ENGINES", None)
REMOTE_HOSTS: list[str] = env.list("DRAFTPROOF_REMOTE_HOSTS", [])
# Hosts that messages may be posted to, and addresses or networks within the house that their names may lead to.
NOTIFY_HOSTS: list[str] = env.list("DRAFTPROOF_NOTIFY_HOSTS", [])
# Where people reach the site: mails and posted messages link there.
SITE_URL = env.str("DRAFTPROOF_SITE_URL", "http://127.0.0.1:8000").rstrip("/")
# The table names the variables that hold keys; whoever needs one is handed this way to read it.
READ_VARIABLE = os.environ.get
# Seconds of a simulated engine's clock per second.
SIMULATED_SPEED = env.float("DRAFTPROOF_SIMULATED_SPEED", 1.0)

DEBUG = env.bool("DRAFTPROOF_DEBUG", False)
ALLOWED_HOSTS = env.list("DRAFTPROOF_ALLOWED_HOSTS", ["127.0.0.1", "localhost", "[::1]"])
CSRF_TRUSTED_ORIGINS: list[str] = env.list("DRAFTPROOF_CSRF_ORIGINS", [])


def embedded_secret_key() -> str:
    """A key of this installation's own, made at the first start and readable by its user alone."""
    path = VAR / "secret_key"
    if not path.exists():
        # Two processes may start at once: the first link wins, and nobody ever reads half a key.
        with NamedTemporaryFile("w", dir=path.parent) as draft, suppress(FileExistsError):
            draft.write(get_random_secret_key())
            draft.flush()
            os.link(draft.name, path)
    return path.read_text()


SECRET_KEY = env.str("DRAFTPROOF_SECRET_KEY", "") or embedded_secret_key()

# The key that signs checkpoints of the ledger and bundles: an object of a key-management service
# (package.module:object), or a private key in PEM here or in a file. Without any of them one is made, under VAR.
SIGNER = env.str("DRAFTPROOF_SIGNER", "")
SIGNING_KEY = env.str("DRAFTPROOF_SIGNING_KEY", "")
SIGNING_KEY_FILE = env.path("DRAFTPROOF_SIGNING_KEY_FILE", None)
OWN_SIGNING_KEY_FILE = VAR / "signing-key.pem"
# What checkpoints call this installation.
ORIGIN = env.str("DRAFTPROOF_ORIGIN", "draftproof")
# Where the beat's checkpoints go besides the database: a file or directory, and addresses.
CHECKPOINT_TO = env.path("DRAFTPROOF_CHECKPOINT_TO", None)
CHECKPOINT_MAIL: list[str] = env.list("DRAFTPROOF_CHECKPOINT_MAIL", [])
EMAIL_URL = env.str("EMAIL_URL", "")
if EMAIL_URL:
    globals().update(env.dj_email_url("EMAIL_URL"))
DEFAULT_FROM_EMAIL = env.str("DRAFTPROOF_MAIL_FROM", "draftproof@localhost")
EMAIL_TIMEOUT = 10

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "csp",
    "django_htmx",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.usersessions",
    "config",
    "loadtests",
    "decisions",
    "workers",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "config.middleware.PlainInput",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "decisions.pages.seen.Seen",
    "decisions.pages.evidence_away.EvidenceAway",
]

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "decisions.pages.context.navigation",
            ],
        },
    }
]


def database() -> dict[str, Any]:
    if not env.str("DATABASE_URL", ""):
        synced = "OFF" if TESTING else "FULL"
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": VAR / "draftproof.sqlite3",
            "OPTIONS": {
                # Writers queue at BEGIN instead of failing when they upgrade from a read.
                "transaction_mode": "IMMEDIATE",
                "timeout": 30,
                "init_command": f"PRAGMA journal_mode=WAL; PRAGMA synchronous={synced}; PRAGMA foreign_keys=ON;",
            },
            # A database file of its own: the in-memory default can't be shared between threads under WAL.
            "TEST": {"NAME": VAR / "test.sqlite3"},
        }
    return dict(env.dj_db_url("DATABASE_URL", conn_max_age=60, conn_health_checks=True))


DATABASES = {"default": database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "decisions.Account"
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "inbox"
LOGOUT_REDIRECT_URL = "sign-in"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
if TESTING:
    PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

# Signing in (docs/accounts.md). Accounts are made by operators: nobody signs up, and no mail is confirmed.
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
ACCOUNT_ADAPTER = "decisions.pages.adapters.Accounts"
ACCOUNT_LOGIN_METHODS = {"username"}
ACCOUNT_SIGNUP_FIELDS = ["username*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_RATE_LIMITS = {"login": "30/m/ip", "login_failed": "10/m/ip,5/5m/key"}
# Proxies of ours before this one: an address in X-Forwarded-For is believed from so many of them.
ALLAUTH_TRUSTED_PROXY_COUNT = env.int("DRAFTPROOF_TRUSTED_PROXIES", 0)
MFA_ADAPTER = "decisions.pages.adapters.SecondFactors"
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes", "webauthn"]
MFA_PASSKEY_LOGIN_ENABLED = True
# A passkey always asks for its PIN, a finger or a face: it is two factors by itself.
MFA_WEBAUTHN_USER_VERIFICATION = "required"
MFA_TOTP_ISSUER = "Draftproof"
# One period of 30 s to each side: telephones' clocks differ.
MFA_TOTP_TOLERANCE = 1
USERSESSIONS_TRACK_ACTIVITY = True

# Single sign-on by OpenID Connect, where an issuer is named.
SINGLE_SIGN_ON_ISSUER = env.str("DRAFTPROOF_OIDC_ISSUER", "")
SINGLE_SIGN_ON_CLIENT = env.str("DRAFTPROOF_OIDC_CLIENT", "")
SINGLE_SIGN_ON_SECRET = env.str("DRAFTPROOF_OIDC_SECRET", "")
SINGLE_SIGN_ON_NAME = env.str("DRAFTPROOF_OIDC_NAME", "single sign-on")
SOCIALACCOUNT_ADAPTER = "decisions.pages.adapters.SingleSignOn"
SOCIALACCOUNT_STORE_TOKENS = False
# A link and no form: a form may lead to this site alone. It begins a sign-in and changes nothing.
SOCIALACCOUNT_LOGIN_ON_GET = True


def single_sign_on() -> dict[str, Any]:
    if not SINGLE_SIGN_ON_ISSUER:
        return {}
    if not SINGLE_SIGN_ON_CLIENT:
        raise ImproperlyConfigured(
            "DRAFTPROOF_OIDC_ISSUER is set: set DRAFTPROOF_OIDC_CLIENT as well, as it is known there"
        )
    app = {
        "provider_id": "sso",
        "name": SINGLE_SIGN_ON_NAME,
        "client_id": SINGLE_SIGN_ON_CLIENT,
        "secret": SINGLE_SIGN_ON_SECRET,
        # What the id token says suffices.
        "settings": {"server_url": SINGLE_SIGN_ON_ISSUER, "fetch_userinfo": False, "oauth_pkce_enabled": True},
    }
    return {"openid_connect": {"APPS": [app]}}


SOCIALACCOUNT_PROVIDERS = single_sign_on()


def shared_cache() -> dict[str, Any]:
    """Counts failed tries and used codes, so every process has to see the same one."""
    if TESTING:
        return {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
    if REDIS_URL:
        return {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL, "KEY_PREFIX": "cache"}
    # As many entries as nobody makes in the minutes that they last: room is made by forgetting some.
    options = {"MAX_ENTRIES": 100_000}
    return {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "cache", "OPTIONS": options}


REDIS_URL = env.str("REDIS_URL", "")
# All on this machine: a receiver beside it may be spoken to in plain HTTP.
EMBEDDED = not REDIS_URL and not env.str("DATABASE_URL", "")
CACHES = {
    "default": shared_cache(),
    # What each process counts by itself: how often a token asks.
    "process": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": "process"},
}

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True

STATIC_URL = "/static/"
STATIC_ROOT = VAR / "static"
STATIC_ROOT.mkdir(parents=True, exist_ok=True)
# plotly's file is served by us, as the installed package ships it.
STATICFILES_DIRS = [("plotly", Path(plotly.__file__).parent / "package_data")]
WHITENOISE_USE_FINDERS = True

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF, "data:"],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    },
}
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
# Set where the site is served over TLS; the embedded default speaks plain HTTP on the loopback address.
HTTPS = env.bool("DRAFTPROOF_HTTPS", False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS
# Whoever asks these stands beside the process and speaks plain HTTP.
SECURE_REDIRECT_EXEMPT = [r"^livez$", r"^readyz$"]
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if HTTPS else None

# A file streams to the disk where it will stay, so that keeping it is a rename.
FILE_UPLOAD_HANDLERS = ["decisions.pages.uploads.BoundedUpload"]
UPLOADS_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)
FILE_UPLOAD_TEMP_DIR = UPLOADS_DIR
UPLOAD_LIMIT_BYTES = env.int("DRAFTPROOF_UPLOAD_MB", 4000) * 1_000_000
# A compressed file may hold a thousand times its size.
UNPACKED_LIMIT_BYTES = env.int("DRAFTPROOF_UNPACKED_GB", 64) * 1_000_000_000

# Address space of the process that reads a result file for a page: 140 MB of JSON took 1.8 GB, 0.7 of them in use.
RESULT_MEMORY_BYTES = env.int("DRAFTPROOF_RESULT_MEMORY_GB", 8) * 1_000_000_000

# A function of text to text, package.module:function, that every imported text goes through.
REDACT_WITH = env.str("DRAFTPROOF_REDACT", "")
# Days for which the text of traffic of no service is kept: nobody sets a retention for it. 0 keeps it.
RETENTION_DAYS = env.int("DRAFTPROOF_RETENTION_DAYS", 30)

BROKER_DIR = VAR / "broker"


def broker_options() -> dict[str, Any]:
    if REDIS_URL:
        return {"visibility_timeout": 6 * 3600}
    for name in ("queue", "control"):
        (BROKER_DIR / name).mkdir(parents=True, exist_ok=True)
    queue = str(BROKER_DIR / "queue")
    return {"data_folder_in": queue, "data_folder_out": queue, "control_folder": str(BROKER_DIR / "control")}


CELERY_BROKER_URL = REDIS_URL or "filesystem://"
if not REDIS_URL:
    CELERY_BROKER_TRANSPORT = "config.broker:WholeFiles"
CELERY_BROKER_TRANSPORT_OPTIONS = broker_options()
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = "control"
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = bool(REDIS_URL)
CELERY_BEAT_SCHEDULE_FILENAME = str(VAR / "beat-schedule")
CELERY_BEAT_SCHEDULE = {
    "reconcile": {"task": "workers.reconcile", "schedule": 5.0, "options": {"expires": 5}},
    "advance": {"task": "decisions.advance_briefs", "schedule": 3.0, "options": {"expires": 3}},
    "sweep": {"task": "workers.sweep", "schedule": 1800.0, "options": {"expires": 1800}},
    "expiries": {"task": "decisions.record_expiries", "schedule": 60.0, "options": {"expires": 60}},
    "verify": {"task": "decisions.verify_chain", "schedule": 60.0, "options": {"expires": 60}},
    "checkpoint": {"task": "decisions.checkpoint_ledger", "schedule": 3600.0, "options": {"expires": 3600}},
    "messages": {"task": "decisions.request_sending", "schedule": 5.0, "options": {"expires": 5}},
    "tidy": {"task": "decisions.tidy", "schedule": 3600.0, "options": {"expires": 3600}},
    "retention": {"task": "decisions.delete_expired_text", "schedule": 3600.0, "options": {"expires": 3600}},
}

# An import that takes longer is ended, and one that says nothing new for so long: it hangs in an expression, perhaps.
IMPORT_LIMIT_S = 2 * 3600
IMPORT_SILENCE_S = 20 * 60

# How long the client is tried against a server that answers at once, before a campaign's first engine starts.
SELF_TEST_S = 3.0

# A running boot or import beats at least this often and is lost after three missed beats.
HEARTBEAT_S = 5

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
    "loggers": {
        # The broker made of files has no host name and need not say so at every connection.
        "kombu.connection": {"level": "ERROR"},
        # Where each process found its keys.
        "botocore.credentials": {"level": "WARNING"},
    },
}
